//! The checks of the standards, each with its reason and what breaks it (`policy/check_*.go`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Level, containers_of};
use crate::error::go_quote;
use crate::podspec::{items_of, text_of};

/// What a pod does that the level does not allow, as `reason (detail)`: first what Baseline forbids too.
/// `minor` is the minor version whose checks are asked for; none is the latest.
pub fn violations(metadata: &Value, spec: &Value, level: Level, minor: Option<u32>) -> Vec<String> {
    let pod = Pod { metadata, spec };
    let windows = spec.pointer("/os/name").and_then(Value::as_str) == Some("windows");
    let (baseline, restricted) = (level == Level::Baseline, level == Level::Restricted);
    let checks: [(bool, Option<String>); 18] = [
        (true, pod.app_armor()),
        (baseline, pod.added_capabilities()),
        (true, pod.host_namespaces()),
        (baseline, pod.host_paths()),
        (true, pod.host_ports()),
        (minor.is_none_or(|minor| minor >= 34), pod.probed_hosts()),
        (true, pod.privileged()),
        (true, pod.proc_mount()),
        (true, pod.se_linux()),
        (baseline, pod.seccomp(false)),
        (true, pod.sysctls()),
        (true, pod.host_process()),
        (restricted && !windows, pod.escalation()),
        (restricted && !windows, pod.kept_capabilities()),
        (restricted, pod.volume_types()),
        (restricted, pod.run_as_non_root()),
        (restricted, pod.run_as_root_user()),
        (restricted && !windows, pod.seccomp(true)),
    ];
    let wanted = checks.into_iter().filter(|(wanted, _)| *wanted && level != Level::Privileged);
    wanted.filter_map(|(_, broken)| broken).collect()
}

struct Pod<'v> {
    metadata: &'v Value,
    spec: &'v Value,
}

fn context_of(holder: &Value) -> &Value {
    holder.get("securityContext").unwrap_or(&Value::Null)
}

fn plural<'t>(count: usize, one: &'t str, many: &'t str) -> &'t str {
    if count == 1 { one } else { many }
}

fn quoted<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    names.into_iter().map(|name| go_quote(name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// `container "a"` or `containers "a", "b"`.
fn named(containers: &[&str]) -> String {
    format!("{} {}", plural(containers.len(), "container", "containers"), quoted(containers))
}

/// Who sets something: the pod, containers, or both.
fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    let of_containers = (!containers.is_empty()).then(|| named(containers));
    match (pod, of_containers) {
        (true, Some(containers)) => Some(format!("pod and {containers}")),
        (true, None) => Some("pod".to_owned()),
        (false, containers) => containers,
    }
}

impl<'v> Pod<'v> {
    /// The names of the containers for which `test` holds.
    fn containers(&self, test: impl Fn(&Value) -> bool) -> Vec<&'v str> {
        containers_of(self.spec).filter(|c| test(c)).map(|c| text_of(c, "name")).collect()
    }

    fn contexts(&self) -> impl Iterator<Item = &'v Value> {
        std::iter::once(context_of(self.spec)).chain(containers_of(self.spec).map(context_of))
    }

    fn app_armor(&self) -> Option<String> {
        let odd = |context: &Value| {
            let kind = context.pointer("/appArmorProfile/type").and_then(Value::as_str);
            kind.is_some_and(|kind| !matches!(kind, "RuntimeDefault" | "Localhost"))
        };
        let mut who: Vec<String> = Vec::new();
        let mut values = BTreeSet::new();
        if odd(context_of(self.spec)) {
            who.push("pod".into());
        }
        let containers = self.containers(|c| odd(context_of(c)));
        if !containers.is_empty() {
            who.push(named(&containers));
        }
        for context in self.contexts().filter(|c| odd(c)) {
            values.insert(text_of(&context["appArmorProfile"], "type").to_owned());
        }
        let annotations = self.metadata.get("annotations").and_then(Value::as_object).into_iter().flatten();
        for (key, value) in
            annotations.filter(|(k, _)| k.starts_with("container.apparmor.security.beta.kubernetes.io/"))
        {
            let value = value.as_str().unwrap_or_default();
            if !value.is_empty() && value != "runtime/default" && !value.starts_with("localhost/") {
                who.push(format!("annotation {}", go_quote(key)));
                values.insert(value.to_owned());
            }
        }
        let reason = plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
        let who_set = || who.join(" and ");
        (!who.is_empty())
            .then(|| format!("{reason} ({} must not set AppArmor profile type to {})", who_set(), quoted(&values)))
    }

    /// The containers that add capabilities beyond `allowed`, and those capabilities.
    fn capabilities_beyond(&self, allowed: &[&str]) -> (Vec<&'v str>, BTreeSet<String>) {
        let beyond = |c: &Value| -> Vec<String> {
            let added = context_of(c).get("capabilities").map_or(&[][..], |c| items_of(c, "add"));
            let added = added.iter().filter_map(Value::as_str).filter(|name| !allowed.contains(name));
            added.map(Into::into).collect()
        };
        let all = containers_of(self.spec).flat_map(&beyond).collect();
        (self.containers(|c| !beyond(c).is_empty()), all)
    }

    fn added_capabilities(&self) -> Option<String> {
        const DEFAULTS: [&str; 13] = [
            "AUDIT_WRITE",
            "CHOWN",
            "DAC_OVERRIDE",
            "FOWNER",
            "FSETID",
            "KILL",
            "MKNOD",
            "NET_BIND_SERVICE",
            "SETFCAP",
            "SETGID",
            "SETPCAP",
            "SETUID",
            "SYS_CHROOT",
        ];
        let (who, what) = self.capabilities_beyond(&DEFAULTS);
        let detail =
            || format!("{} must not include {} in securityContext.capabilities.add", named(&who), quoted(&what));
        (!who.is_empty()).then(|| format!("non-default capabilities ({})", detail()))
    }

    fn kept_capabilities(&self) -> Option<String> {
        let keeps = |c: &Value| {
            let dropped = context_of(c).get("capabilities").map_or(&[][..], |c| items_of(c, "drop"));
            !dropped.iter().any(|name| name == "ALL")
        };
        let mut details = Vec::new();
        let keeping = self.containers(keeps);
        if !keeping.is_empty() {
            details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", named(&keeping)));
        }
        let (who, what) = self.capabilities_beyond(&["NET_BIND_SERVICE"]);
        if !who.is_empty() {
            let what = quoted(&what);
            details.push(format!("{} must not include {what} in securityContext.capabilities.add", named(&who)));
        }
        (!details.is_empty()).then(|| format!("unrestricted capabilities ({})", details.join("; ")))
    }

    fn host_namespaces(&self) -> Option<String> {
        let set = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|key| self.spec[key] == true);
        let set: Vec<String> = set.map(|key| format!("{key}=true")).collect();
        (!set.is_empty()).then(|| format!("host namespaces ({})", set.join(", ")))
    }

    fn host_paths(&self) -> Option<String> {
        let volumes = items_of(self.spec, "volumes").iter().filter(|v| v.get("hostPath").is_some());
        let names: Vec<&str> = volumes.map(|v| text_of(v, "name")).collect();
        let word = plural(names.len(), "volume", "volumes");
        (!names.is_empty()).then(|| format!("hostPath volumes ({word} {})", quoted(&names)))
    }

    fn host_ports(&self) -> Option<String> {
        let ports_of = |c: &Value| -> Vec<i64> {
            let ports = items_of(c, "ports").iter().filter_map(|p| p.get("hostPort").and_then(Value::as_i64));
            ports.filter(|port| *port != 0).collect()
        };
        let who = self.containers(|c| !ports_of(c).is_empty());
        let ports: BTreeSet<String> =
            containers_of(self.spec).flat_map(ports_of).map(|port| port.to_string()).collect();
        let word = plural(ports.len(), "hostPort", "hostPorts");
        let uses = plural(who.len(), "uses", "use");
        let listed = ports.iter().cloned().collect::<Vec<_>>().join(", ");
        (!who.is_empty()).then(|| format!("hostPort ({} {uses} {word} {listed})", named(&who)))
    }

    fn probed_hosts(&self) -> Option<String> {
        let hosts_of = |c: &Value| -> Vec<String> {
            let probes = ["livenessProbe", "readinessProbe", "startupProbe"].iter().filter_map(|key| c.get(key));
            let hooks = ["postStart", "preStop"].iter().filter_map(|key| c.pointer(&format!("/lifecycle/{key}")));
            let handlers = probes.chain(hooks).flat_map(|h| ["httpGet", "tcpSocket"].map(|kind| h.get(kind)));
            handlers.flatten().map(|h| text_of(h, "host").to_owned()).filter(|host| !host.is_empty()).collect()
        };
        let who = self.containers(|c| !hosts_of(c).is_empty());
        let hosts: BTreeSet<String> = containers_of(self.spec).flat_map(hosts_of).collect();
        let (uses, word) = (plural(who.len(), "uses", "use"), plural(hosts.len(), "host", "hosts"));
        (!who.is_empty()).then(|| {
            format!("probe or lifecycle host ({} {uses} probe or lifecycle {word} {})", named(&who), quoted(&hosts))
        })
    }

    fn privileged(&self) -> Option<String> {
        let who = self.containers(|c| context_of(c)["privileged"] == true);
        (!who.is_empty()).then(|| format!("privileged ({} must not set securityContext.privileged=true)", named(&who)))
    }

    fn proc_mount(&self) -> Option<String> {
        let odd = |c: &Value| {
            Some(text_of(context_of(c), "procMount").to_owned()).filter(|m| !matches!(m.as_str(), "" | "Default"))
        };
        let who = self.containers(|c| odd(c).is_some());
        let kinds: BTreeSet<String> = containers_of(self.spec).filter_map(odd).collect();
        let detail = || format!("{} must not set securityContext.procMount to {}", named(&who), quoted(&kinds));
        (!who.is_empty()).then(|| format!("procMount ({})", detail()))
    }

    fn se_linux(&self) -> Option<String> {
        const TYPES: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
        let text = |context: &Value, key: &str| {
            context.pointer(&format!("/seLinuxOptions/{key}")).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let odd = |context: &Value| {
            !TYPES.contains(&text(context, "type").as_str())
                || !text(context, "user").is_empty()
                || !text(context, "role").is_empty()
        };
        let who = setters(odd(context_of(self.spec)), &self.containers(|c| odd(context_of(c))))?;
        let types: BTreeSet<String> =
            self.contexts().map(|c| text(c, "type")).filter(|t| !TYPES.contains(&t.as_str())).collect();
        let mut details = Vec::new();
        if !types.is_empty() {
            details.push(format!("{} {}", plural(types.len(), "type", "types"), quoted(&types)));
        }
        for key in ["user", "role"] {
            if self.contexts().any(|c| !text(c, key).is_empty()) {
                details.push(format!("{key} may not be set"));
            }
        }
        Some(format!("seLinuxOptions ({who} set forbidden securityContext.seLinuxOptions: {})", details.join("; ")))
    }

    /// Restricted wants one of two profiles; Baseline only forbids none at all.
    fn seccomp(&self, restricted: bool) -> Option<String> {
        let kind = |context: &Value| context.pointer("/seccompProfile/type").and_then(Value::as_str).map(str::to_owned);
        let odd =
            |context: &Value| kind(context).is_some_and(|k| !matches!(k.as_str(), "RuntimeDefault" | "Localhost"));
        let values: BTreeSet<String> = self.contexts().filter(|c| odd(c)).filter_map(kind).collect();
        if let Some(who) = setters(odd(context_of(self.spec)), &self.containers(|c| odd(context_of(c)))) {
            let values = quoted(&values);
            return Some(format!(
                "seccompProfile ({who} must not set securityContext.seccompProfile.type to {values})"
            ));
        }
        if !restricted || kind(context_of(self.spec)).is_some() {
            return None;
        }
        let without = self.containers(|c| kind(context_of(c)).is_none());
        (!without.is_empty()).then(|| {
            format!(
                "seccompProfile (pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
                 \"Localhost\")",
                named(&without)
            )
        })
    }

    fn sysctls(&self) -> Option<String> {
        const SAFE: [&str; 12] = [
            "kernel.shm_rmid_forced",
            "net.ipv4.ip_local_port_range",
            "net.ipv4.ip_local_reserved_ports",
            "net.ipv4.ip_unprivileged_port_start",
            "net.ipv4.ping_group_range",
            "net.ipv4.tcp_fin_timeout",
            "net.ipv4.tcp_keepalive_intvl",
            "net.ipv4.tcp_keepalive_probes",
            "net.ipv4.tcp_keepalive_time",
            "net.ipv4.tcp_rmem",
            "net.ipv4.tcp_syncookies",
            "net.ipv4.tcp_wmem",
        ];
        let names = items_of(context_of(self.spec), "sysctls").iter().map(|s| text_of(s, "name"));
        let odd: Vec<&str> = names.filter(|name| !SAFE.contains(name)).collect();
        (!odd.is_empty()).then(|| format!("forbidden sysctls ({})", odd.join(", ")))
    }

    fn host_process(&self) -> Option<String> {
        let set = |context: &Value| context.pointer("/windowsOptions/hostProcess") == Some(&Value::Bool(true));
        let who = setters(set(context_of(self.spec)), &self.containers(|c| set(context_of(c))))?;
        Some(format!("hostProcess ({who} must not set securityContext.windowsOptions.hostProcess=true)"))
    }

    fn escalation(&self) -> Option<String> {
        let who = self.containers(|c| context_of(c)["allowPrivilegeEscalation"] != false);
        let detail = || format!("{} must set securityContext.allowPrivilegeEscalation=false", named(&who));
        (!who.is_empty()).then(|| format!("allowPrivilegeEscalation != false ({})", detail()))
    }

    fn volume_types(&self) -> Option<String> {
        const ALLOWED: [&str; 9] = [
            "configMap",
            "csi",
            "downwardAPI",
            "emptyDir",
            "ephemeral",
            "image",
            "persistentVolumeClaim",
            "projected",
            "secret",
        ];
        let source = |v: &Value| v.as_object().and_then(|v| v.keys().find(|k| *k != "name").cloned());
        let odd = |v: &Value| source(v).filter(|s| !ALLOWED.contains(&s.as_str()));
        let volumes = items_of(self.spec, "volumes");
        let names: Vec<&str> = volumes.iter().filter(|v| odd(v).is_some()).map(|v| text_of(v, "name")).collect();
        let types: BTreeSet<String> = volumes.iter().filter_map(odd).collect();
        let word = plural(names.len(), "volume", "volumes");
        let uses = plural(names.len(), "uses", "use");
        let kinds = plural(types.len(), "type", "types");
        let detail = || format!("{word} {} {uses} restricted volume {kinds} {}", quoted(&names), quoted(&types));
        (!names.is_empty()).then(|| format!("restricted volume types ({})", detail()))
    }

    fn run_as_non_root(&self) -> Option<String> {
        let wish = |holder: &Value| context_of(holder).get("runAsNonRoot").and_then(Value::as_bool);
        let pod = wish(self.spec);
        if let Some(who) = setters(pod == Some(false), &self.containers(|c| wish(c) == Some(false))) {
            return Some(format!("runAsNonRoot != true ({who} must not set securityContext.runAsNonRoot=false)"));
        }
        let without = self.containers(|c| wish(c).is_none());
        (pod.is_none() && !without.is_empty()).then(|| {
            let who = named(&without);
            format!("runAsNonRoot != true (pod or {who} must set securityContext.runAsNonRoot=true)")
        })
    }

    fn run_as_root_user(&self) -> Option<String> {
        let root = |holder: &Value| context_of(holder).get("runAsUser").and_then(Value::as_i64) == Some(0);
        let who = setters(root(self.spec), &self.containers(root))?;
        Some(format!("runAsUser=0 ({who} must not set runAsUser=0)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(spec: Value, level: Level) -> Vec<String> {
        violations(&Value::Null, &spec, level, None)
    }

    #[test]
    fn a_bare_pod_is_baseline_and_not_restricted() {
        let spec = json!({"containers": [{"name": "c"}, {"name": "d"}]});
        assert!(of(spec.clone(), Level::Baseline).is_empty());
        let broken = of(spec.clone(), Level::Restricted);
        assert_eq!(broken.len(), 4);
        assert_eq!(
            broken[0],
            "allowPrivilegeEscalation != false (containers \"c\", \"d\" must set \
             securityContext.allowPrivilegeEscalation=false)"
        );
        assert!(of(spec, Level::Privileged).is_empty());
    }

    #[test]
    fn who_follows_the_standard_passes() {
        let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        let spec = json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "securityContext": context}]});
        assert_eq!(of(spec, Level::Restricted), Vec::<String>::new());
    }

    #[test]
    fn baseline_keeps_pods_out_of_the_host() {
        let spec = json!({"hostPID": true, "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
            "containers": [{"name": "c", "ports": [{"hostPort": 80}]}]});
        assert_eq!(
            of(spec, Level::Baseline),
            [
                "host namespaces (hostPID=true)",
                "hostPath volumes (volume \"v\")",
                "hostPort (container \"c\" uses hostPort 80)"
            ]
        );
    }
}
