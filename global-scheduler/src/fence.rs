//! Which grants may be placed: those of whoever held the controller's lease after they were seen here.
//!
//! Rule: a grant says under which lease it was made (`caldera.dev/epoch`). Before anything more of it is placed the lease is
//! read, and that read begins after the grant was seen. If the lease was still the grant's, whoever takes it later lists
//! the grant, and charges it, before it grants anything itself. If it was not, the holder of the lease decides about the
//! grant, and says so by granting it anew or by taking it back. One read serves all grants that wait for it.

use std::{collections::BTreeMap, time::Duration};

use caldera_runtime::lease::{self, Record};
use kube::Client;
use tokio::{sync::mpsc, time::sleep};

use crate::{binding::Binding, index::Key};

/// After a read that failed.
const AGAIN: Duration = Duration::from_secs(1);

/// What was read.
pub(crate) type Read = Option<Record>;

/// A grant as it was seen: version of the binding, and its epoch.
type Grant = (String, String);

/// See the module.
pub(crate) struct Fence {
    /// Namespace and name of the controller's lease; `None`: grants are not looked at.
    lease: Option<(String, String)>,
    client: Client,
    answers: mpsc::UnboundedSender<Read>,
    /// Those that the read under way is for.
    asked: Option<BTreeMap<Key, Grant>>,
    /// Those that the next one is for.
    waiting: BTreeMap<Key, Grant>,
    /// Versions that may be placed.
    vouched: BTreeMap<Key, String>,
}

impl Fence {
    pub(crate) fn new(lease: Option<(String, String)>, client: Client) -> (Self, mpsc::UnboundedReceiver<Read>) {
        let (answers, read) = mpsc::unbounded_channel();
        let (waiting, vouched) = Default::default();
        (Self { lease, client, answers, asked: None, waiting, vouched }, read)
    }

    /// Whether so many replicas of a binding may be placed now. If not yet, it is due again once that is known.
    pub(crate) fn may_place(&mut self, binding: &Binding, replicas: i64) -> bool {
        let Some(epoch) = binding.epoch.as_ref().filter(|_| self.lease.is_some()) else { return true };
        let placed: i64 = binding.place.previous.iter().map(|target| target.replicas).sum();
        if placed >= replicas && placed > 0 {
            return true;
        }
        if self.vouched.get(&binding.key) == Some(&binding.resource_version) {
            return true;
        }
        self.vouched.remove(&binding.key);
        let grant = (binding.resource_version.clone(), epoch.clone());
        if self.asked.as_ref().and_then(|asked| asked.get(&binding.key)) != Some(&grant) {
            self.waiting.insert(binding.key.clone(), grant);
            self.read();
        }
        false
    }

    /// The lease was read: who is due.
    pub(crate) fn read_is(&mut self, read: &Read) -> Vec<Key> {
        let epoch = read.as_ref().map(Record::epoch);
        if let (None, Some((namespace, name))) = (read, &self.lease) {
            tracing::warn!(
                namespace,
                name,
                "grants name a lease that is not there; is the controller's in another namespace?"
            );
        }
        let mut due = Vec::new();
        for (key, (version, granted)) in self.asked.take().into_iter().flatten() {
            if epoch.as_ref() == Some(&granted) {
                self.vouched.insert(key.clone(), version);
                due.push(key);
            } else {
                tracing::info!(binding = %key, granted, ?epoch, "granted under another lease; its holder decides");
            }
        }
        self.read();
        due
    }

    /// A binding is gone, or was placed.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.vouched.remove(key);
        self.waiting.remove(key);
    }

    fn read(&mut self) {
        let Some((namespace, name)) = self.lease.clone().filter(|_| self.asked.is_none()) else { return };
        if self.waiting.is_empty() {
            return;
        }
        self.asked = Some(std::mem::take(&mut self.waiting));
        let (client, answers) = (self.client.clone(), self.answers.clone());
        tokio::spawn(async move {
            loop {
                match lease::current(&client, &namespace, &name).await {
                    Ok(read) => return answers.send(read).unwrap_or_default(),
                    Err(_) if answers.is_closed() => return,
                    Err(failure) => tracing::warn!(%failure, "failed to read the controller's lease"),
                }
                sleep(AGAIN).await;
            }
        });
    }
}
