//! The user's Secret in place of the one that plugin `ssh` makes in each cluster.
//!
//! Rule: paths, modes and files are the plugin's (Volcano `pkg/controllers/job/plugins/ssh/ssh.go`, `mountRsaKey`). The
//! plugin is taken out of the copy: it would mount its own Secret at the same path, or write over one of its name.

use serde_json::{Map, Value, json};

use super::plugin_flag;

/// Name of the volume: a Secret's may be longer than a volume's.
const VOLUME: &str = "caldera-ssh";
const PATH: &str = "/root/.ssh";
const FILES: [&str; 4] = ["id_rsa", "id_rsa.pub", "authorized_keys", "config"];

/// Mounts the Secret where plugin `ssh` would mount its own. `before` are the job's plugins as its user wrote them: a
/// copy that is made again has the volume already.
pub(super) fn mount_secret(spec: &mut Map<String, Value>, before: &Map<String, Value>, secret: &str) {
    let path = plugin_flag(before, "ssh", "ssh-key-file-path").unwrap_or(PATH);
    let Some(plugins) = spec.get_mut("plugins").and_then(Value::as_object_mut) else { return };
    if plugins.remove("ssh").is_none() {
        return;
    }
    // Whoever is not root reads it by the rights of others, as with the plugin.
    let mode = if path == PATH { 0o600 } else { 0o644 };
    let items = FILES.map(|file| json!({"key": file, "path": format!(".ssh/{file}")}));
    let volume = json!({"name": VOLUME, "secret": {"secretName": secret, "items": items, "defaultMode": mode}});
    let mount = json!({"name": VOLUME, "mountPath": path, "subPath": ".ssh"});
    for task in spec.get_mut("tasks").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(pod) = task.pointer_mut("/template/spec").and_then(Value::as_object_mut) else { continue };
        push_item(pod, "volumes", &volume);
        for kind in ["containers", "initContainers"] {
            for container in pod.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    push_item(container, "volumeMounts", &mount);
                }
            }
        }
    }
}

fn push_item(of: &mut Map<String, Value>, field: &str, item: &Value) {
    let list = of.entry(field).or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        list.push(item.clone());
    }
}
