//! A pod's first container as a process: its command, its variables, its files, its host name, on a root of its own.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::Context;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;

use super::network::PodPlace;

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Files of a pod by their path, with their modes.
#[derive(Default)]
pub(super) struct Files(BTreeMap<PathBuf, (Vec<u8>, u32)>);

impl Files {
    /// Adds what a volume of this Secret or ConfigMap shows where the pod's first container mounts it.
    pub(super) fn mount_volume(&mut self, pod: &Value, volume: &Value, object: &Value) -> anyhow::Result<()> {
        let source = volume.get("secret").or_else(|| volume.get("configMap")).context("neither kind of volume")?;
        let default_mode = source["defaultMode"].as_u64().unwrap_or(0o644);
        let mut shown = BTreeMap::new();
        for (key, data) in object["data"].as_object().into_iter().flatten() {
            let data = data.as_str().unwrap_or_default();
            let bytes = if volume.get("secret").is_some() { BASE64_STANDARD.decode(data)? } else { data.into() };
            let item = list(source, "/items").iter().find(|item| text(item, "/key") == key);
            let path = match item {
                Some(item) => text(item, "/path"),
                None if list(source, "/items").is_empty() => key,
                None => continue,
            };
            let mode = item.and_then(|item| item["mode"].as_u64()).unwrap_or(default_mode);
            shown.insert(PathBuf::from(path), (bytes, u32::try_from(mode)?));
        }
        let mounts = list(pod, "/spec/containers/0/volumeMounts");
        for mount in mounts.iter().filter(|mount| mount["name"] == volume["name"]) {
            for (path, file) in &shown {
                let Ok(path) = path.strip_prefix(text(mount, "/subPath")) else { continue };
                self.0.insert(Path::new(text(mount, "/mountPath")).join(path), file.clone());
            }
        }
        Ok(())
    }

    pub(super) fn add_hosts(&mut self, hosts: &str) {
        self.0.insert("/etc/hosts".into(), (hosts.into(), 0o644));
    }

    fn write_under(&self, root: &Path) -> anyhow::Result<()> {
        for (path, (bytes, mode)) in &self.0 {
            let path = root.join(path.strip_prefix("/")?);
            fs::create_dir_all(path.parent().context("a file without a directory")?)?;
            fs::write(&path, bytes)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode))?;
        }
        Ok(())
    }
}

/// What `/etc/hosts` says in each cluster: its own pods by the names of their Service, and all by the clusterset's.
pub(super) fn write_hosts<'a>(
    pods: impl Iterator<Item = ((&'a str, &'a Value), &'a PodPlace)>,
) -> BTreeMap<String, String> {
    let pods: Vec<(&str, &Value, Ipv4Addr)> =
        pods.map(|((cluster, pod), place)| (cluster, pod, place.address)).collect();
    let mut hosts = BTreeMap::new();
    for (here, ..) in &pods {
        let mut all = "127.0.0.1 localhost\n".to_owned();
        for (cluster, pod, address) in &pods {
            let (name, service) = (text(pod, "/spec/hostname"), text(pod, "/spec/subdomain"));
            let namespace = text(pod, "/metadata/namespace");
            let _ = write!(all, "{address} {name}.{cluster}.{service}.{namespace}.svc.clusterset.local");
            if cluster == here {
                let _ = write!(all, " {name}.{service}.{namespace}.svc.cluster.local {name}.{service} {name}");
            }
            all.push('\n');
        }
        hosts.insert((*here).to_owned(), all);
    }
    hosts
}

/// The container's variables, with `$(NAME)` of those before each, as Kubernetes expands it.
fn read_variables(pod: &Value) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for one in list(pod, "/spec/containers/0/env") {
        let value = match text(one, "/valueFrom/fieldRef/fieldPath") {
            "" => expand(text(one, "/value"), &variables),
            path => text(pod, &format!("/{}", path.replace('.', "/"))).to_owned(),
        };
        variables.push((text(one, "/name").to_owned(), value));
    }
    variables
}

fn expand(text: &str, variables: &[(String, String)]) -> String {
    variables.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

/// The root is a layer above the machine's, in a tmpfs that goes with the process.
const ENTER_ROOT: &str = r#"
set -e
layer=$1 name=$2
shift 2
mount -t tmpfs -o size=256m tmpfs "$layer/own"
mkdir "$layer/own/upper" "$layer/own/work" "$layer/own/root"
root=$layer/own/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$layer/own/upper,workdir=$layer/own/work" "$root"
mount --rbind /dev "$root/dev"
mount -t sysfs sysfs "$root/sys"
mount -t proc proc "$root/proc"
mount -t tmpfs -o size=256m tmpfs "$root/tmp"
mount -t tmpfs -o size=16m,mode=700 tmpfs "$root/root"
hostname "$name"
cp -a "$layer/files/." "$root/"
exec chroot "$root" "$@"
"#;

/// See the module. Killed when it is dropped, with all that it started.
pub(super) struct PodProcess {
    child: Child,
    layer: PathBuf,
    has_ended: bool,
}

impl PodProcess {
    pub(super) fn start(pod: &Value, place: &PodPlace, files: &Files) -> anyhow::Result<Self> {
        let layer = std::env::temp_dir().join(&place.namespace);
        fs::create_dir_all(layer.join("own"))?;
        fs::create_dir_all(layer.join("files"))?;
        files.write_under(&layer.join("files"))?;
        let log = fs::File::create(layer.join("log"))?;
        let variables = read_variables(pod);
        let words = ["command", "args"].map(|field| list(pod, &format!("/spec/containers/0/{field}")));
        let words =
            words.concat().iter().filter_map(Value::as_str).map(|word| expand(word, &variables)).collect::<Vec<_>>();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &place.namespace, "unshare", "--mount", "--uts", "--pid", "--fork"]);
        command.args(["--kill-child", "sh", "-c", ENTER_ROOT, "enter-root"]);
        command.arg(&layer).arg(text(pod, "/spec/hostname")).args(words);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/root").envs(variables);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Self { child: command.spawn().context("starting a pod's process")?, layer, has_ended: false })
    }

    /// The code that it ended with, once.
    pub(super) fn take_exit_code(&mut self) -> anyhow::Result<Option<i32>> {
        if self.has_ended {
            return Ok(None);
        }
        let status = self.child.try_wait()?;
        self.has_ended = status.is_some();
        Ok(status.map(|status| status.code().unwrap_or(-1)))
    }

    pub(super) fn read_log(&self) -> String {
        fs::read(self.layer.join("log")).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }
}

impl Drop for PodProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.layer);
    }
}
