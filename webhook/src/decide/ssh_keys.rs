//! One pair of SSH keys for all copies of a job that may be split.
//!
//! Volcano's plugin `ssh` makes a pair in each cluster (`pkg/controllers/job/plugins/ssh/ssh.go`), so pods of one could
//! not log in to those of another. A job that declares a clusterset and brings no pair gets one when it is created, as
//! the plugin's own flags `--ssh-private-key` and `--ssh-public-key`: all copies then carry the same. Whoever may read
//! the job reads its key, which opens nothing but that job's pods. Who minds names a Secret (`caldera.dev/ssh-secret`):
//! such a job gets no pair, and its copies mount the Secret (`job_copy/rendezvous`).

use caldera_crds::{
    names::caldera::{RENDEZVOUS, RENDEZVOUS_CLUSTERSET, SSH_SECRET},
    object::annotation_of,
};
use serde_json::{Value, json};
use ssh_key::{LineEnding, PrivateKey, private::Ed25519Keypair};

const PRIVATE: &str = "ssh-private-key";
const PUBLIC: &str = "ssh-public-key";

/// Randomness that a pair is made of.
pub type Seed = [u8; 32];

/// A pair of keys, as OpenSSH writes them to files.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    private: String,
    public: String,
}

impl KeyPair {
    /// The Ed25519 pair of a seed, which nobody else may know.
    #[must_use]
    pub fn from_seed(seed: &Seed) -> Option<Self> {
        let key = PrivateKey::from(Ed25519Keypair::from_seed(seed));
        let private = key.to_openssh(LineEnding::LF).ok()?.as_str().to_owned();
        Some(Self { private, public: key.public_key().to_openssh().ok()? + "\n" })
    }

    /// The pair that a job carries.
    fn read_job_pair(job: &Value) -> Option<Self> {
        let flags = job.pointer("/spec/plugins/ssh")?.as_array()?;
        let value = |name: &str| {
            let of = |flag: &Value| Some(flag_value(flag, name)?.strip_prefix('=')?.to_owned());
            flags.iter().find_map(of)
        };
        Some(Self { private: value(PRIVATE)?, public: value(PUBLIC)? })
    }
}

/// What follows a flag's name, if it is that flag.
fn flag_value<'a>(flag: &'a Value, name: &str) -> Option<&'a str> {
    let rest = flag.as_str()?.trim_start_matches('-').strip_prefix(name)?;
    (rest.is_empty() || rest.starts_with('=')).then_some(rest)
}

/// The Secret that a job's user names for its keys.
pub(super) fn read_secret_name(job: &Value) -> Option<&str> {
    annotation_of(job, SSH_SECRET).filter(|name| !name.is_empty())
}

/// Gives a job the pair that it needs and lacks: its former self's, or a fresh one when it is created.
pub fn add_missing_key_pair(job: &mut Value, former: Option<&Value>, fresh: impl FnOnce() -> Option<KeyPair>) {
    let is_clusterset = annotation_of(job, RENDEZVOUS) == Some(RENDEZVOUS_CLUSTERSET);
    let has_secret = read_secret_name(job).is_some();
    let Some(flags) = job.pointer_mut("/spec/plugins/ssh").filter(|flags| flags.is_array() || flags.is_null()) else {
        return;
    };
    let brings = |flag: &Value| flag_value(flag, PRIVATE).is_some() || flag_value(flag, PUBLIC).is_some();
    if flags.as_array().is_some_and(|flags| flags.iter().any(brings)) {
        return;
    }
    let pair = match former {
        // Plugins can not be changed: a manifest that is applied again would take the pair away.
        Some(former) => KeyPair::read_job_pair(former),
        None if is_clusterset && !has_secret => fresh(),
        None => None,
    };
    let Some(pair) = pair else { return };
    if flags.is_null() {
        *flags = json!([]);
    }
    if let Some(flags) = flags.as_array_mut() {
        flags.push(format!("--{PRIVATE}={}", pair.private).into());
        flags.push(format!("--{PUBLIC}={}", pair.public).into());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn job(flags: Value, mode: &str) -> Value {
        json!({"metadata": {"annotations": {"caldera.dev/rendezvous": mode}}, "spec": {"plugins": {"ssh": flags}}})
    }

    fn pair() -> Option<KeyPair> {
        Some(KeyPair { private: "p".into(), public: "q".into() })
    }

    #[test]
    fn a_job_of_a_clusterset_gets_a_pair_once_and_keeps_it() {
        let mut created = job(json!([]), "clusterset");
        add_missing_key_pair(&mut created, None, pair);
        assert_eq!(created["spec"]["plugins"]["ssh"], json!(["--ssh-private-key=p", "--ssh-public-key=q"]));
        let mut again = created.clone();
        add_missing_key_pair(&mut again, None, || panic!("asked for another"));
        assert_eq!(again, created);
        let mut applied = job(json!([]), "clusterset");
        add_missing_key_pair(&mut applied, Some(&created), || panic!("asked for another"));
        assert_eq!(applied, created);
    }

    #[test]
    fn who_brings_a_pair_or_a_secret_or_is_not_split_over_a_clusterset_is_left_alone() {
        for mut job in [
            job(json!(["-ssh-private-key", "mine", "--ssh-public-key=mine"]), "clusterset"),
            job(json!([]), "torchrun"),
            job(json!("odd"), "clusterset"),
            json!({
                "metadata": {"annotations": {"caldera.dev/rendezvous": "clusterset", "caldera.dev/ssh-secret": "s"}},
                "spec": {"plugins": {"ssh": []}},
            }),
            json!({"metadata": {"annotations": {"caldera.dev/rendezvous": "clusterset"}}, "spec": {}}),
        ] {
            let before = job.clone();
            add_missing_key_pair(&mut job, None, pair);
            assert_eq!(job, before);
        }
    }

    #[test]
    fn a_pair_is_one_that_openssh_reads_and_its_seed_decides_which() {
        let pair = |seed: u8| KeyPair::from_seed(&[seed; 32]).unwrap();
        let one = pair(1);
        assert!(one == pair(1) && one != pair(2));
        let key = PrivateKey::from_openssh(&one.private).unwrap();
        assert_eq!(key.public_key().to_openssh().unwrap(), one.public.trim_end());
        let file = std::env::temp_dir().join(format!("caldera-ssh-{}", std::process::id()));
        std::fs::write(&file, &one.private).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let said = std::process::Command::new("ssh-keygen").arg("-yf").arg(&file).output();
        std::fs::remove_file(&file).unwrap();
        match said {
            Ok(said) => assert_eq!(String::from_utf8_lossy(&said.stdout).trim_end(), one.public.trim_end()),
            Err(_) => eprintln!("skipped: no ssh-keygen here"),
        }
    }
}
