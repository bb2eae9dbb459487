//! Reads when the credentials end of the kubeconfig that the doctor goes by, and of those in a directory, as `caldera
//! install --dir` writes them. Only of these is known when the webhook's end, which holds no Lease.

use std::path::Path;

use anyhow::Context as _;
use caldera_runtime::client::{credentials::Lifetime, load_config};

use crate::doctor::facts::KubeconfigFacts;

/// Files of a directory that are taken for kubeconfigs end so.
const ENDING: &str = "kubeconfig";

/// Ours, and those of a directory in the order of their names.
///
/// # Errors
/// If the directory can not be read.
pub async fn read_kubeconfigs(ours: Option<&Path>, dir: Option<&Path>) -> anyhow::Result<Vec<KubeconfigFacts>> {
    let mut all = vec![read_kubeconfig(None, ours).await];
    if let Some(dir) = dir {
        let failed = || format!("failed to read {}", dir.display());
        let mut files = Vec::new();
        for entry in std::fs::read_dir(dir).with_context(failed)? {
            files.push(entry.with_context(failed)?.path());
        }
        files.retain(|file| file.extension().is_some_and(|ending| ending == ENDING));
        files.sort();
        for file in files {
            all.push(read_kubeconfig(Some(file.display().to_string()), Some(&file)).await);
        }
    }
    Ok(all)
}

async fn read_kubeconfig(file: Option<String>, path: Option<&Path>) -> KubeconfigFacts {
    let credentials = match load_config(path).await {
        Ok(config) => Ok(Lifetime::of_config(&config)),
        Err(error) => Err(error.to_string()),
    };
    KubeconfigFacts { file, credentials }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn each_kubeconfig_of_a_directory_says_when_it_ends_or_why_it_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, token: &str| {
            let kubeconfig = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": "https://h"}}],
                "users": [{"name": "u", "user": {"token": token}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            });
            let path = dir.path().join(name);
            fs::write(&path, kubeconfig.to_string()).unwrap();
            path
        };
        let ours = write("ours", "secret");
        // {"exp":1700000000,"iat":1600000000}
        write("b.kubeconfig", "e30.eyJleHAiOjE3MDAwMDAwMDAsImlhdCI6MTYwMDAwMDAwMH0.e30");
        fs::write(dir.path().join("a.kubeconfig"), "users: [hunter2").unwrap();
        fs::write(dir.path().join("tls.key"), "secret").unwrap();
        let read = read_kubeconfigs(Some(&ours), Some(dir.path())).await.unwrap();
        let [ours, broken, dated] = read.as_slice() else { panic!("{read:?}") };
        assert_eq!(ours, &KubeconfigFacts { file: None, credentials: Ok(None) }, "no JWT");
        let why = broken.credentials.as_ref().unwrap_err();
        assert!(broken.file.as_ref().is_some_and(|file| file.ends_with("a.kubeconfig")) && !why.contains("hunter2"));
        assert_eq!(dated.credentials.as_ref().unwrap().unwrap().ends.as_second(), 1_700_000_000);
        assert!(read_kubeconfigs(None, Some(&dir.path().join("none"))).await.is_err());
    }
}
