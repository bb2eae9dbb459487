//! The API server and what the scenario needs on it.

use std::path::{Path, PathBuf};

use caldera_cli::{manifests, roles, stack};
use caldera_crds::trusted::TrustedWriters;
use embedded_apiserver::{ApiServer, Options};
use kube::Client;
use serde_json::{Value, json};

use super::parts::Parts;
use crate::{
    host::add_members,
    world::{self, QUEUES},
};

/// Cohorts, and queues in each.
pub const COHORTS: usize = 5;
pub const QUEUES_OF_ONE: usize = 6;
/// Cores that each queue deserves.
pub const NOMINAL: u64 = 20;
/// Cores of a cohort. A queue may borrow all of the others'.
pub const COHORT: u64 = NOMINAL * QUEUES_OF_ONE as u64;

/// A queue of a cohort.
pub fn name_queue(cohort: usize, queue: usize) -> String {
    format!("cohort-{cohort}-queue-{queue}")
}

/// The embedded API server; its kubeconfig.
pub fn serve_embedded(dir: &Path) -> anyhow::Result<PathBuf> {
    let server = ApiServer::new(Options { name: "host".into(), ..Options::default() });
    let endpoint = world::serve_router("host", &server, server.router())?;
    let path = dir.join("admin.kubeconfig");
    std::fs::write(&path, endpoint.kubeconfig())?;
    Ok(path)
}

/// Karmada's and Volcano's kinds, and three members with room for all.
pub async fn install_members(admin: &Client) -> anyhow::Result<()> {
    let mut crds = caldera_crds::manifests::build_karmada_crds();
    crds.push(caldera_crds::manifests::build_cluster_crd());
    crds.extend(caldera_crds::manifests::build_volcano_crds());
    for crd in crds {
        stack::apply_object(admin, crd).await?;
    }
    for path in [world::JOBS, world::BINDINGS, QUEUES, world::CLUSTERS] {
        world::wait_until_served(admin, path).await?;
    }
    add_members(admin, 16 * 5).await
}

/// What `caldera manifests` has, and the classes of the scenario.
pub async fn install_caldera(admin: &Client, parts: &Parts) -> anyhow::Result<()> {
    let endpoint = caldera_webhook::Endpoint::Url(parts.webhook_url());
    let mut objects = roles::build_component_roles(&roles::Granted::default());
    objects.extend(caldera_crds::manifests::build_federation_crds());
    objects.extend(caldera_webhook::build_configurations(&endpoint, parts.authority_pem()));
    objects.extend(manifests::list_admission_policies(&TrustedWriters::default(), false));
    objects.extend(manifests::build_propagation_policies());
    objects.extend(super::load::SIZES.iter().map(|size| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": size.name},
            "value": size.priority,
        })
    }));
    for object in objects {
        stack::apply_object(admin, object).await?;
    }
    Ok(())
}

/// The cohorts and their queues.
pub async fn create_queues(admin: &Client) -> anyhow::Result<()> {
    for cohort in 0..COHORTS {
        let parent = format!("cohort-{cohort}");
        world::create_object(admin, QUEUES, &make_queue(&parent, None, COHORT)).await?;
        for queue in 0..QUEUES_OF_ONE {
            let name = name_queue(cohort, queue);
            world::create_object(admin, QUEUES, &make_queue(&name, Some(&parent), NOMINAL)).await?;
        }
    }
    Ok(())
}

fn make_queue(name: &str, parent: Option<&str>, deserved: u64) -> Value {
    let mut queue = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name},
        "spec": {
            "weight": 1, "reclaimable": true,
            "deserved": {"cpu": deserved.to_string()}, "capability": {"cpu": COHORT.to_string()},
        },
    });
    if let Some(parent) = parent {
        queue["spec"]["parent"] = parent.into();
    }
    queue
}
