//! Reads from the API what the cache lacks for a review.

use std::{collections::BTreeMap, time::Duration};

use caldera_crds::{
    dns::{is_dns_label, is_dns_subdomain},
    tenancy::NamespaceFacts,
    workload::{device_claims::MOST_CLAIM_BYTES, read_gang},
};
use caldera_runtime::{lease::read_lease, watch::api_resource};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::Value;

use crate::observe::cache::{CachedBinding, CachedWorkload, GrantFacts, LiveRead, Lookup};

/// How long a live read may take: well below the API server's patience.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads what a rule asks for. Names come from requests: one that no object can have is not asked for, because in a
/// path it would mean another object.
pub(super) async fn read_live(client: &Client, lookup: &Lookup) -> LiveRead {
    match lookup {
        Lookup::Binding((namespace, name)) if !(is_dns_label(namespace) && is_dns_subdomain(name)) => {
            return LiveRead::Binding(None);
        }
        Lookup::Workload(key) if !(is_dns_label(&key.namespace) && is_dns_subdomain(&key.name)) => {
            return LiveRead::Workload(None, false);
        }
        Lookup::Grant(key, _) if !(is_dns_label(&key.namespace) && is_dns_subdomain(&key.name)) => {
            return LiveRead::Grant(Box::new(GrantFacts { gang: None, epoch: None }));
        }
        Lookup::Access(namespace) if !is_dns_label(namespace) => {
            return LiveRead::Failed(format!("{namespace:?} is no name of a namespace"));
        }
        Lookup::ClaimTemplates(namespace, _) if !is_dns_label(namespace) => {
            return LiveRead::ClaimTemplates(BTreeMap::new());
        }
        _ => {}
    }
    let read = async {
        match lookup {
            Lookup::Binding((namespace, name)) => {
                let resource = api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings");
                let object = read_object(client, &resource, namespace, name).await?;
                Ok(LiveRead::Binding(object.map(|object| Box::new(CachedBinding::from_object(&object)))))
            }
            Lookup::Workload(key) => {
                let object = read_object(client, &key.kind.api_resource(), &key.namespace, &key.name).await?;
                let namespace = read_namespace(client, &key.namespace).await?;
                let workload = object.map(|object| CachedWorkload::from_object(key.kind, &object));
                Ok(LiveRead::Workload(workload, namespace.is_some_and(|facts| facts.opted_in)))
            }
            Lookup::ClaimTemplates(namespace, names) => {
                let resource = api_resource("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates");
                let mut found = BTreeMap::new();
                for name in names.iter().filter(|name| is_dns_subdomain(name)) {
                    let templates: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
                    let spec = match templates.get(name).await {
                        Ok(template) => template.data.pointer("/spec/spec").cloned().unwrap_or_default(),
                        // Not the template is not there, but all of its kind.
                        Err(kube::Error::Api(status)) if status.code == 404 && !status.message.contains(name) => {
                            let why = "the host's API server does not serve resource.k8s.io/v1".to_owned();
                            return Ok(LiveRead::Failed(why));
                        }
                        Err(kube::Error::Api(status)) if status.code == 404 => continue,
                        Err(error) => return Err(error),
                    };
                    // What is too long is refused, and kept by nobody.
                    let is_short = spec.to_string().len() <= MOST_CLAIM_BYTES;
                    found.insert(name.clone(), if is_short { spec } else { Value::Null });
                }
                Ok(LiveRead::ClaimTemplates(found))
            }
            Lookup::Queues => list_queues(client).await.map(LiveRead::Queues),
            Lookup::Grant(key, (lease_namespace, lease)) => {
                let epoch = match read_lease(client, lease_namespace, lease).await {
                    Ok(record) => record.map(|record| record.epoch()),
                    Err(failure) => return Ok(LiveRead::Failed(format!("failed to read Lease {lease}: {failure}"))),
                };
                let object = read_object(client, &key.kind.api_resource(), &key.namespace, &key.name).await?;
                let gang = object.map(|object| read_gang(&object).map_err(|error| error.to_string()));
                Ok(LiveRead::Grant(Box::new(GrantFacts { gang, epoch })))
            }
            Lookup::Access(namespace) => {
                let facts = read_namespace(client, namespace).await?;
                Ok(LiveRead::Access(facts, list_queues(client).await?))
            }
        }
    };
    match tokio::time::timeout(READ_TIMEOUT, read).await {
        Ok(read) => read.unwrap_or_else(|error: kube::Error| LiveRead::Failed(error.to_string())),
        Err(_) => LiveRead::Failed(format!("no answer within {} s", READ_TIMEOUT.as_secs())),
    }
}

async fn read_namespace(client: &Client, name: &str) -> Result<Option<NamespaceFacts>, kube::Error> {
    let namespaces: Api<DynamicObject> =
        Api::all_with(client.clone(), &api_resource("", "v1", "Namespace", "namespaces"));
    Ok(namespaces.get_opt(name).await?.map(|namespace| NamespaceFacts::read(&namespace.metadata)))
}

async fn list_queues(client: &Client) -> Result<Vec<Value>, kube::Error> {
    let resource = api_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let listed = api.list(&ListParams::default()).await?.items;
    listed.into_iter().map(|queue| serde_json::to_value(queue).map_err(kube::Error::SerdeError)).collect()
}

async fn read_object(
    client: &Client,
    resource: &ApiResource,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let object = api.get_opt(name).await?;
    object.map(|object| serde_json::to_value(object).map_err(kube::Error::SerdeError)).transpose()
}
