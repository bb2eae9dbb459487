//! Who asks, and what of it he may see.
//!
//! Rules:
//! - The API server says who a token is (TokenReview) and what he may list (SubjectAccessReview). Nothing else counts.
//! - A job is seen by whoever may list its kind in its namespace; others' jobs are numbers without names. Queues and
//!   members have names for whoever may list them, or has jobs in them.
//! - An answer counts for half a minute, by the token's digest; so many are kept and no more. A refused token takes
//!   nobody's place.
//! - Tokens that were not good before are asked about a few at once, and each that is refused keeps its turn for a
//!   while: who tries many waits, and who is known does not.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context;
use caldera_crds::workload::WorkloadKind;
use caldera_runtime::access;
use k8s_openapi::api::{
    authentication::v1::UserInfo,
    authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec},
};
use kube::{Client, core::ApiResource};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::answers::AnswerCache;
use crate::{
    objects,
    view::{JobView, Seen},
};

/// How long an answer counts.
const COUNTS_FOR: Duration = Duration::from_secs(30);
/// Tokens that are known at once.
const MOST_KNOWN_TOKENS: usize = 1024;
/// Tokens that were not good before and are asked about at once.
const MOST_UNKNOWN_TOKENS: usize = 4;
/// How long one that is refused keeps its turn: sixteen in a second are asked about.
const REFUSED_FOR: Duration = Duration::from_millis(250);
/// Namespaces whose events somebody asks for.
const EVENT_NAMESPACES: usize = 64;
/// Questions to the API server at once.
const MOST_CONCURRENT_REVIEWS: usize = 8;
/// Namespaces that are asked about for one user.
const MOST_REVIEWED_NAMESPACES: usize = 100;

/// What somebody may see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// As the API server names him.
    pub user: String,
    /// Kinds of all namespaces.
    pub kinds: BTreeSet<WorkloadKind>,
    /// Kinds of one namespace.
    pub owned: BTreeSet<(String, WorkloadKind)>,
    /// All queues by name.
    pub queues: bool,
    /// All members by name.
    pub clusters: bool,
    /// Whether there are namespaces that were not asked about.
    pub is_cut: bool,
}

impl Access {
    /// Whether he may see this job.
    #[must_use]
    pub fn may_see(&self, job: &JobView<'_>) -> bool {
        self.kinds.contains(&job.key.kind) || self.owned.contains(&(job.key.namespace.clone(), job.key.kind))
    }

    /// Whether he may see some kind of jobs in a namespace.
    #[must_use]
    pub fn sees_namespace(&self, namespace: &str) -> bool {
        !self.kinds.is_empty() || self.owned.iter().any(|(owned, _)| owned == namespace)
    }
}

/// Why somebody sees nothing.
#[derive(Debug)]
pub enum Refusal {
    /// The API server does not know the token.
    Unknown,
    /// It could not be asked.
    Failed(anyhow::Error),
}

/// Whom the API server knows.
pub struct ReviewedUser {
    /// What he may see.
    pub access: Access,
    user: UserInfo,
    /// By namespace, whether he may list events.
    events: AnswerCache<String, bool>,
}

type Digested = [u8; 32];

/// Asks the API server, and remembers for a while what it said.
pub struct AccessReviewer {
    client: Client,
    known: AnswerCache<Digested, Option<Arc<ReviewedUser>>>,
    newcomers: Semaphore,
    questions: Semaphore,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => f.write_str("the token was refused"),
            Self::Failed(error) => write!(f, "{error:#}"),
        }
    }
}

impl AccessReviewer {
    /// Knows nobody yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self::with_cache_time(client, COUNTS_FOR)
    }

    fn with_cache_time(client: Client, counts_for: Duration) -> Self {
        let known = AnswerCache::new(counts_for, MOST_KNOWN_TOKENS, Option::is_some);
        Self {
            client,
            known,
            newcomers: Semaphore::new(MOST_UNKNOWN_TOKENS),
            questions: Semaphore::new(MOST_CONCURRENT_REVIEWS),
        }
    }

    /// What the bearer of a token may see of these (namespace, kind) pairs, and of a namespace that he names himself.
    ///
    /// # Errors
    /// If he is nobody, or the API server can not be asked.
    pub async fn find_user_access(
        &self,
        token: &str,
        named: Option<&str>,
        pairs: impl FnOnce() -> BTreeSet<(String, WorkloadKind)>,
    ) -> Result<Arc<ReviewedUser>, Refusal> {
        self.find_access(digest_question(token, 0, named.unwrap_or_default()), token, named, pairs).await
    }

    /// What the bearer of a token may see of one namespace. All kinds are asked about, whether it has any or not: what
    /// is refused tells nobody what is there.
    ///
    /// # Errors
    /// As [`Self::find_user_access`].
    pub async fn find_namespace_access(&self, token: &str, namespace: &str) -> Result<Arc<ReviewedUser>, Refusal> {
        let pairs = || WorkloadKind::list_all().map(|kind| (namespace.to_owned(), kind)).collect();
        self.find_access(digest_question(token, 1, namespace), token, Some(namespace), pairs).await
    }

    async fn find_access(
        &self,
        digest: Digested,
        token: &str,
        named: Option<&str>,
        pairs: impl FnOnce() -> BTreeSet<(String, WorkloadKind)>,
    ) -> Result<Arc<ReviewedUser>, Refusal> {
        let asked = async |was_good: bool| {
            let Some(user) = self.identify_user(token, was_good).await? else { return Ok(None) };
            self.review_user_access(user, named, pairs()).await.map(|guest| Some(Arc::new(guest)))
        };
        self.known.get_or_find(&digest, asked).await.map_err(Refusal::Failed)?.ok_or(Refusal::Unknown)
    }

    /// Who a token is. One that was not good before waits for its turn.
    async fn identify_user(&self, token: &str, was_good: bool) -> anyhow::Result<Option<UserInfo>> {
        if was_good {
            return self.review_token(token).await;
        }
        let _turn = self.newcomers.acquire().await?;
        let user = self.review_token(token).await?;
        if user.is_none() {
            tokio::time::sleep(REFUSED_FOR).await;
        }
        Ok(user)
    }

    async fn review_user_access(
        &self,
        user: UserInfo,
        named: Option<&str>,
        mut pairs: BTreeSet<(String, WorkloadKind)>,
    ) -> anyhow::Result<ReviewedUser> {
        let may = |resource: ApiResource, namespace: &str| {
            let (user, namespace) = (user.clone(), namespace.to_owned());
            async move { self.review_access(&user, &resource, &namespace).await }
        };
        let mut access = Access { user: user.username.clone().unwrap_or_default(), ..Access::default() };
        (access.queues, access.clusters) =
            futures::try_join!(may(objects::queue_resource(), ""), may(objects::cluster_resource(), ""))?;
        for kind in WorkloadKind::list_all() {
            if may(kind.api_resource(), "").await? {
                access.kinds.insert(kind);
            }
        }
        pairs.retain(|(_, kind)| !access.kinds.contains(kind));
        // A service account's own namespace, and the one that he names, before those of others.
        let own = access.user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split(':').next());
        let first: BTreeSet<&str> = own.into_iter().chain(named).collect();
        let mut namespaces: Vec<&str> = pairs.iter().map(|(namespace, _)| namespace.as_str()).collect();
        namespaces.sort_by_key(|namespace| (!first.contains(namespace), *namespace));
        namespaces.dedup();
        access.is_cut = namespaces.len() > MOST_REVIEWED_NAMESPACES;
        namespaces.truncate(MOST_REVIEWED_NAMESPACES);
        let wanted = namespaces.iter().flat_map(|namespace| {
            let here = pairs.iter().filter(move |(its, _)| its == namespace);
            here.map(|(namespace, kind)| (namespace.clone(), *kind))
        });
        let asked = wanted.map(|(namespace, kind)| async move {
            anyhow::Ok(may(kind.api_resource(), &namespace).await?.then_some((namespace, kind)))
        });
        access.owned = futures::future::try_join_all(asked).await?.into_iter().flatten().collect();
        Ok(ReviewedUser { access, user, events: AnswerCache::new(COUNTS_FOR, EVENT_NAMESPACES, |_| true) })
    }

    async fn review_token(&self, token: &str) -> anyhow::Result<Option<UserInfo>> {
        let _turn = self.questions.acquire().await?;
        access::review_token(&self.client, token).await.context("failed to ask who a token is")
    }

    /// Whether a user may list a resource; in all namespaces if none is given.
    async fn review_access(&self, user: &UserInfo, resource: &ApiResource, namespace: &str) -> anyhow::Result<bool> {
        let _turn = self.questions.acquire().await?;
        let attributes = ResourceAttributes {
            verb: Some("list".to_owned()),
            group: Some(resource.group.clone()),
            version: Some(resource.version.clone()),
            resource: Some(resource.plural.clone()),
            namespace: Some(namespace.to_owned()),
            ..ResourceAttributes::default()
        };
        let asked = SubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        access::review_access(&self.client, user, asked).await.context("failed to ask what a user may see")
    }

    /// Whether somebody may list events of a namespace.
    ///
    /// # Errors
    /// If the API server can not be asked.
    pub async fn sees_events(&self, guest: &ReviewedUser, namespace: &str) -> anyhow::Result<bool> {
        let asked = async |_| self.review_access(&guest.user, &objects::event_resource(), namespace).await;
        guest.events.get_or_find(&namespace.to_owned(), asked).await
    }
}

/// Of a token and what is asked of it; questions of two forms are never the same.
fn digest_question(token: &str, form: u8, namespace: &str) -> Digested {
    Sha256::new().chain_update(token).chain_update([form]).chain_update(namespace).finalize().into()
}

/// Namespaces and kinds of which there are jobs.
#[must_use]
pub fn list_namespaces_and_kinds(seen: &Seen) -> BTreeSet<(String, WorkloadKind)> {
    seen.jobs().map(|job| (job.key.namespace.clone(), job.key.kind)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::future::{Either, join_all};
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;

    /// A gatekeeper before a server that knows tokens that begin with `good`, and what that was asked.
    fn gatekeeper(counts_for: Duration) -> (AccessReviewer, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let log = Arc::clone(&log);
            async move {
                let body = request.into_body().collect_bytes().await.map_err(tower::BoxError::from)?;
                let mut review: Value = serde_json::from_slice(&body)?;
                let kind = review["kind"].as_str().unwrap_or_default().to_owned();
                if kind == "TokenReview" {
                    let token = review["spec"]["token"].as_str().unwrap_or_default().to_owned();
                    review["status"] = json!({"authenticated": token.starts_with("good"), "user": {"username": token}});
                } else {
                    review["status"] = json!({"allowed": true});
                }
                log.lock().unwrap().push(kind);
                let body = kube::client::Body::from(review.to_string().into_bytes());
                http::Response::builder().status(201).body(body).map_err(tower::BoxError::from)
            }
        });
        (AccessReviewer::with_cache_time(Client::new(service, "ns"), counts_for), asked)
    }

    fn count(asked: &Mutex<Vec<String>>, kind: &str) -> usize {
        asked.lock().unwrap().iter().filter(|asked| *asked == kind).count()
    }

    async fn is_known(gatekeeper: &AccessReviewer, token: String) -> bool {
        gatekeeper.find_user_access(&token, None, BTreeSet::new).await.is_ok()
    }

    #[tokio::test]
    async fn wrong_tokens_are_asked_about_slowly_and_who_is_known_does_not_wait_for_them() {
        let (gatekeeper, _) = gatekeeper(Duration::ZERO);
        assert!(is_known(&gatekeeper, "good".to_owned()).await);
        let started = Instant::now();
        let wrong = join_all((0..3 * MOST_UNKNOWN_TOKENS).map(|at| is_known(&gatekeeper, format!("wrong{at}"))));
        let known = is_known(&gatekeeper, "good".to_owned());
        // It is asked about again behind all of these, and is answered first.
        match futures::future::select(Box::pin(wrong), Box::pin(known)).await {
            Either::Right((known, wrong)) => assert!(known && wrong.await.iter().all(|known| !known)),
            Either::Left(_) => panic!("wrong tokens were answered first"),
        }
        assert!(started.elapsed() >= REFUSED_FOR * 3, "{:?}", started.elapsed());
    }

    /// Found by a reader: each stream asked who it is and what it may see, every two seconds.
    #[tokio::test]
    async fn streams_of_one_token_share_its_answers() {
        let (gatekeeper, asked) = gatekeeper(COUNTS_FOR);
        let look = async || {
            let guest =
                gatekeeper.find_user_access("good", None, BTreeSet::new).await.map_err(|why| why.to_string()).unwrap();
            assert!(gatekeeper.sees_events(&guest, "ns").await.unwrap());
        };
        for _ in 0..10 {
            join_all((0..16).map(|_| look())).await;
        }
        assert_eq!(count(&asked, "TokenReview"), 1);
        // Queues, members, each kind of workload, and events.
        assert_eq!(count(&asked, "SubjectAccessReview"), 3 + WorkloadKind::ALL.len());
    }
}
