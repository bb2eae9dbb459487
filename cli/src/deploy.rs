//! `caldera manifests --deployments` and `--member`: the Deployments that run Caldera, with what belongs to them.
//!
//! The components run in a cluster that is not the Karmada API. Each reaches that API by a kubeconfig in a Secret and
//! needs no token for the cluster it runs in. A collector inside a Pull member is the exception: it reads that member
//! with its pod's service account.
//!
//! Secrets are referred to, never made: `caldera-<component>-kubeconfig` (key `kubeconfig`), `caldera-webhook-cert` and
//! `caldera-console-cert` (`tls.crt`, `tls.key`), and the one that collectors show each other, where one is named. A
//! webhook that registers itself wants none with a certificate.

use caldera_crds::trusted::Writer;
use serde_json::{Value, json};

/// Where `/healthz`, `/readyz` and `/metrics` listen.
const ADMIN_PORT: u16 = 8080;
/// Where the webhook listens.
const WEBHOOK_PORT: u16 = 8443;
/// Where the console listens.
const CONSOLE_PORT: u16 = 8444;
/// Where a collector listens for those of other members.
const PROBE_PORT: u16 = 7950;
/// The longest name of a member whose collector runs beside the control plane: its labels are named after it.
pub const MOST_COLLECTOR_NAME: usize = 63 - "caldera-inventory-".len();
/// Where the certificate is mounted that collectors show each other.
const PROBE_DIR: &str = "/etc/caldera/probe";
/// Where a kubeconfig is mounted.
const KUBECONFIG_DIR: &str = "/etc/caldera/kubeconfig";
/// Where a certificate is mounted.
const CERTIFICATE_DIR: &str = "/etc/caldera/tls";
/// The namespace of leases and service accounts on the Karmada API.
const LEASE_NAMESPACE: &str = "caldera-system";
/// On a Namespace (label): its pods may read the metrics of Caldera's components.
const MONITORING: &str = "caldera.dev/monitoring";

/// What is deployed.
#[derive(Debug, Clone, Default)]
pub struct Deploy {
    /// The image that has `caldera` as its entry point.
    pub image: String,
    /// Namespace, in the cluster that the components run in.
    pub namespace: String,
    /// Members that get a collector.
    pub collectors: Vec<String>,
    /// Namespaces whose pods may call the webhook: those of the Karmada API server and controllers.
    pub callers: Vec<String>,
    /// Networks from which it may be called, too.
    pub caller_addresses: Vec<String>,
    /// Whether the console runs, too.
    pub console: bool,
    /// Whether karmada-scheduler places, and no scheduler of ours.
    pub stock_scheduler: bool,
    /// Whom the webhook trusts; without any whom it trusts by default.
    pub trusted_writers: Vec<Writer>,
    /// Where the webhook registers itself, with an authority that its replicas share, in place of a certificate from a
    /// Secret.
    pub register_url: Option<String>,
    /// By what collectors measure the way to other members, if they do.
    pub probe: Option<ProbeSettings>,
}

/// By what collectors measure the way to other members.
#[derive(Debug, Clone, Default)]
pub struct ProbeSettings {
    /// Secret with `tls.crt`, `tls.key` and `ca.crt`.
    pub secret: String,
    /// `NAME=HOST:PORT` of each member; each collector leaves out its own.
    pub peers: Vec<String>,
}

/// One component's process.
struct Part<'a> {
    /// `caldera-<this>` is the name of all that belongs to it.
    name: String,
    subcommand: &'a str,
    replicas: u32,
    args: Vec<String>,
    /// Memory request and limit. The request covers 10,000 jobs (97 MB) and 200 members of 1,000 nodes (98 to 191 MB)
    /// over the 45 MB of an idle process (docs/benchmarks.md); the limit is four times that.
    memory: (&'a str, &'a str),
    cpu: &'a str,
    /// The port where it serves HTTPS.
    port: Option<u16>,
    /// Secret with a serving certificate.
    certificate: Option<&'a str>,
    /// Secret with the certificate that is shown to other members' collectors.
    probe_secret: Option<&'a str>,
    /// Uses the service account of its pod for the cluster that it runs in.
    in_cluster: bool,
}

/// Everything that runs beside Karmada.
#[must_use]
pub fn build_component_objects(deploy: &Deploy) -> Vec<Value> {
    let mut objects = vec![build_namespace(&deploy.namespace)];
    let lease = || vec![format!("--lease-namespace={LEASE_NAMESPACE}")];
    let part = |subcommand, args, memory, cpu| Part {
        name: format!("caldera-{subcommand}"),
        subcommand,
        replicas: 2,
        args,
        memory,
        cpu,
        port: None,
        certificate: None,
        probe_secret: None,
        in_cluster: false,
    };
    let listen = |port: u16| format!("--listen=0.0.0.0:{port}");
    let certificate = || {
        [("--tls-cert", "tls.crt"), ("--tls-key", "tls.key")]
            .map(|(flag, file)| format!("{flag}={CERTIFICATE_DIR}/{file}"))
    };
    let (mut of_webhook, mut of_controller) = (vec![listen(WEBHOOK_PORT)], lease());
    match &deploy.register_url {
        Some(url) => of_webhook.push(format!("--register-url={url}")),
        None => of_webhook.extend(certificate()),
    }
    of_webhook.extend(deploy.trusted_writers.iter().map(|writer| format!("--trusted-writer={writer}")));
    // There is the controller's lease, which it reads, and the authority that its replicas share.
    if deploy.stock_scheduler || deploy.register_url.is_some() {
        of_webhook.extend(lease());
    }
    if deploy.stock_scheduler {
        for args in [&mut of_webhook, &mut of_controller] {
            args.push("--stock-scheduler".to_owned());
        }
    }
    let webhook = Part {
        port: Some(WEBHOOK_PORT),
        certificate: deploy.register_url.is_none().then_some("caldera-webhook-cert"),
        ..part("webhook", of_webhook, ("96Mi", "384Mi"), "100m")
    };
    let mut parts = vec![webhook, part("controller", of_controller, ("384Mi", "1536Mi"), "250m")];
    if !deploy.stock_scheduler {
        parts.push(part("scheduler", lease(), ("384Mi", "1536Mi"), "250m"));
    }
    for cluster in &deploy.collectors {
        let part = build_collector_part(cluster, false, deploy.probe.as_ref());
        if deploy.probe.is_some() {
            objects.extend([
                build_probe_service(deploy, &format!("caldera-probe-{cluster}"), &part.name),
                // From wherever other members are: their certificates say who they are.
                build_network_policy(
                    deploy,
                    &format!("caldera-probe-{cluster}"),
                    json!({"app.kubernetes.io/name": part.name}),
                    json!({"ports": [{"protocol": "TCP", "port": PROBE_PORT}]}),
                ),
            ]);
        }
        parts.push(part);
    }
    if deploy.console {
        let of_console = [listen(CONSOLE_PORT)].into_iter().chain(certificate()).collect();
        parts.push(Part {
            replicas: 1,
            port: Some(CONSOLE_PORT),
            certificate: Some("caldera-console-cert"),
            ..part("console", of_console, ("128Mi", "512Mi"), "50m")
        });
        objects.extend([
            build_service(deploy, "caldera-console", Some("caldera-console"), ("https", 443)),
            // Whoever reaches the cluster: who he is decides what he sees.
            build_network_policy(
                deploy,
                "caldera-console",
                json!({"app.kubernetes.io/name": "caldera-console"}),
                json!({"ports": [{"protocol": "TCP", "port": CONSOLE_PORT}]}),
            ),
        ]);
    }
    for part in &parts {
        objects.extend(build_part_objects(deploy, part));
    }
    objects.extend(build_network_policies(deploy));
    objects.push(build_service(deploy, "caldera-webhook", Some("caldera-webhook"), ("https", 443)));
    objects.push(build_service(deploy, "caldera-metrics", None, ("admin", ADMIN_PORT)));
    objects
}

/// What a member needs so that a collector (or an estimator) inside it can read its nodes, their NUMA nodes, their
/// devices and what they use, pods, HyperNodes and queues; with the collector itself where an image and the member's
/// name are given, and what measures the way to other members, where that is wanted of it.
#[must_use]
pub fn build_member_objects(
    namespace_name: &str,
    collector_of: Option<(&str, &str)>,
    probe: Option<&ProbeSettings>,
) -> Vec<Value> {
    let name = "caldera-inventory";
    let read = ["list", "watch"];
    let mut objects = vec![
        build_namespace(namespace_name),
        build_service_account(name, namespace_name),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": build_component_labels(None)},
            "rules": [
                {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": read},
                {"apiGroups": ["topology.volcano.sh"], "resources": ["hypernodes"], "verbs": read},
                {"apiGroups": ["nodeinfo.volcano.sh"], "resources": ["numatopologies"], "verbs": read},
                {
                    "apiGroups": ["resource.k8s.io"],
                    "resources": ["deviceclasses", "resourceclaims", "resourceslices"], "verbs": read,
                },
                {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": read},
                {"apiGroups": ["metrics.k8s.io"], "resources": ["nodes"], "verbs": ["list"]},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": build_component_labels(None)},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace_name}],
        }),
    ];
    if let Some((image, cluster)) = collector_of {
        let (image, namespace) = (image.to_owned(), namespace_name.to_owned());
        let deploy = Deploy { image, namespace, ..Deploy::default() };
        let part = Part { name: name.to_owned(), ..build_collector_part(cluster, true, probe) };
        objects.push(build_deployment(&deploy, &part));
        objects.extend(probe.map(|_| build_probe_service(&deploy, "caldera-probe", name)));
    }
    objects
}

/// The collector of a member. One replica is enough: what it published stays valid until another one takes over.
fn build_collector_part<'a>(cluster: &str, in_cluster: bool, probe: Option<&'a ProbeSettings>) -> Part<'a> {
    let mut args = vec![format!("--cluster={cluster}"), format!("--lease-namespace={LEASE_NAMESPACE}")];
    args.extend(in_cluster.then(|| "--in-member".to_owned()));
    if let Some(probe) = probe {
        args.push(format!("--probe-listen=0.0.0.0:{PROBE_PORT}"));
        let files = [("cert", "tls.crt"), ("key", "tls.key"), ("ca", "ca.crt")];
        args.extend(files.map(|(flag, file)| format!("--probe-{flag}-file={PROBE_DIR}/{file}")));
        args.extend(probe.peers.iter().map(|peer| format!("--probe-peer={peer}")));
    }
    Part {
        name: format!("caldera-inventory-{cluster}"),
        subcommand: "inventory",
        replicas: 1,
        args,
        memory: ("96Mi", "384Mi"),
        cpu: "50m",
        port: None,
        certificate: None,
        probe_secret: probe.map(|probe| probe.secret.as_str()),
        in_cluster,
    }
}

fn build_part_objects(deploy: &Deploy, part: &Part<'_>) -> Vec<Value> {
    let mut objects = vec![build_service_account(&part.name, &deploy.namespace), build_deployment(deploy, part)];
    if part.replicas > 1 {
        objects.push(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": part.name, "namespace": deploy.namespace, "labels": build_component_labels(Some(&part.name))},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/name": part.name}}},
        }));
    }
    objects
}

fn build_deployment(deploy: &Deploy, part: &Part<'_>) -> Value {
    let own = json!({"app.kubernetes.io/name": part.name});
    let mut args = vec![
        part.subcommand.to_owned(),
        format!("--kubeconfig={KUBECONFIG_DIR}/kubeconfig"),
        format!("--admin=0.0.0.0:{ADMIN_PORT}"),
    ];
    args.extend(part.args.iter().cloned());
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "admin"}, "periodSeconds": 10});
    let mut ports = vec![json!({"name": "admin", "containerPort": ADMIN_PORT})];
    let mut mounts = vec![json!({"name": "kubeconfig", "mountPath": KUBECONFIG_DIR, "readOnly": true})];
    let secret = format!("caldera-{}-kubeconfig", part.subcommand);
    let mut volumes = vec![json!({"name": "kubeconfig", "secret": {"secretName": secret}})];
    ports.extend(part.port.map(|port| json!({"name": "https", "containerPort": port})));
    if let Some(certificate) = part.certificate {
        mounts.push(json!({"name": "tls", "mountPath": CERTIFICATE_DIR, "readOnly": true}));
        volumes.push(json!({"name": "tls", "secret": {"secretName": certificate}}));
    }
    if let Some(secret) = part.probe_secret {
        ports.push(json!({"name": "probe", "containerPort": PROBE_PORT}));
        mounts.push(json!({"name": "probe", "mountPath": PROBE_DIR, "readOnly": true}));
        volumes.push(json!({"name": "probe", "secret": {"secretName": secret}}));
    }
    let (requested, most) = part.memory;
    let container = json!({
        "name": part.subcommand,
        "image": deploy.image,
        "args": args,
        // Threads share what is free: else each keeps its own.
        "env": [{"name": "MALLOC_ARENA_MAX", "value": "2"}],
        "ports": ports,
        "livenessProbe": probe("/healthz"),
        "readinessProbe": probe("/readyz"),
        "resources": {"requests": {"cpu": part.cpu, "memory": requested}, "limits": {"memory": most}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    });
    let elsewhere = json!({
        "weight": 100,
        "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": own}},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": part.name, "namespace": deploy.namespace, "labels": build_component_labels(Some(&part.name))},
        "spec": {
            "replicas": part.replicas,
            "selector": {"matchLabels": own},
            "template": {
                "metadata": {"labels": build_component_labels(Some(&part.name))},
                "spec": {
                    "serviceAccountName": part.name,
                    "automountServiceAccountToken": part.in_cluster,
                    "securityContext": {
                        "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [elsewhere]}},
                    "containers": [container],
                    "volumes": volumes,
                },
            },
        },
    })
}

/// A Service of one component, or of all.
fn build_service(deploy: &Deploy, name: &str, component: Option<&str>, (port_name, port): (&str, u16)) -> Value {
    let selector = match component {
        Some(component) => json!({"app.kubernetes.io/name": component}),
        None => json!({"app.kubernetes.io/part-of": "caldera"}),
    };
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": deploy.namespace, "labels": build_component_labels(component)},
        "spec": {"selector": selector, "ports": [{"name": port_name, "port": port, "targetPort": port_name}]},
    })
}

/// Where other members reach a collector: by the address of a load balancer, or by the port that it has on each node.
fn build_probe_service(deploy: &Deploy, name: &str, component: &str) -> Value {
    let mut service = build_service(deploy, name, Some(component), ("probe", PROBE_PORT));
    service["spec"]["type"] = "LoadBalancer".into();
    service
}

/// Who may reach what: the webhook's port from the namespaces of its callers and from the networks that are given, the
/// admin ports from namespaces with the label `caldera.dev/monitoring`, and nothing else. (A kubelet's probes always
/// arrive.)
fn build_network_policies(deploy: &Deploy) -> [Value; 2] {
    let namespaces = |expression: Value| json!({"namespaceSelector": {"matchExpressions": [expression]}});
    let by_name = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": deploy.callers});
    let mut callers = vec![namespaces(by_name)];
    callers.extend(deploy.caller_addresses.iter().map(|cidr| json!({"ipBlock": {"cidr": cidr}})));
    let watchers = [namespaces(json!({"key": MONITORING, "operator": "Exists"}))];
    let ports = |port: u16| json!([{"protocol": "TCP", "port": port}]);
    [
        build_network_policy(
            deploy,
            "caldera-webhook",
            json!({"app.kubernetes.io/name": "caldera-webhook"}),
            json!({"from": callers, "ports": ports(WEBHOOK_PORT)}),
        ),
        build_network_policy(
            deploy,
            "caldera-admin",
            json!({"app.kubernetes.io/part-of": "caldera"}),
            json!({"from": watchers, "ports": ports(ADMIN_PORT)}),
        ),
    ]
}

fn build_network_policy(deploy: &Deploy, name: &str, pods: Value, rule: Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": deploy.namespace, "labels": build_component_labels(None)},
        "spec": {"podSelector": {"matchLabels": pods}, "policyTypes": ["Ingress"], "ingress": [rule]},
    })
}

fn build_namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn build_service_account(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, "labels": build_component_labels(None)},
    })
}

fn build_component_labels(component: Option<&str>) -> Value {
    let mut labels = json!({"app.kubernetes.io/part-of": "caldera"});
    if let Some(component) = component {
        labels["app.kubernetes.io/name"] = component.into();
    }
    labels
}
