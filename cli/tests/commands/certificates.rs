//! The webhook's certificate and its authority are replaced while reviews come, and not one is refused: where replicas
//! share an authority of their own, and where an admin brings files.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_cli::{
    objects::{self, read_text_at},
    roles::{AUTHORITY_SECRET, Granted, NAMESPACE, build_component_roles, name_account},
    stack::apply_object,
    webhook_identity::{AuthorityKeeper, Registration, follow_bundle, rotation::RotationTiming},
};
use caldera_crds::names::caldera;
use caldera_runtime::{
    client::{self, WriteCounts},
    tls::{Authority, CertificateExpiry, Identity, ServedTls, install_provider, parse_roots, server_config},
};
use caldera_sandbox::fleet::{Config, Fleet};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// A machine that is busy may take as long.
const AT_LAST: Duration = Duration::from_secs(120);
/// Between two looks of a replica.
const LOOK: Duration = Duration::from_millis(200);
/// Between two reviews.
const PACE: Duration = Duration::from_millis(20);

/// A host, and who asks it.
struct World {
    stop: CancellationToken,
    admin: Client,
    /// With the webhook's account.
    webhook: Client,
    /// Reviews that were answered.
    reviews: AtomicUsize,
    _fleet: Fleet,
}

impl World {
    async fn start() -> Self {
        install_provider();
        let stop = CancellationToken::new();
        let fleet = Fleet::start(Config::with_members(0), &stop).await.unwrap();
        let admin = fleet.host.client("test", &WriteCounts::default()).unwrap();
        for object in build_component_roles(&Granted { registers: true, ..Granted::default() }) {
            apply_object(&admin, object).await.unwrap();
        }
        let mut config = fleet.host.config().unwrap();
        config.auth_info.impersonate = Some(name_account("webhook"));
        let webhook = client::from_config(config, "webhook", &WriteCounts::default()).unwrap();
        Self { stop, admin, webhook, reviews: AtomicUsize::new(0), _fleet: fleet }
    }

    fn registration(&self, address: SocketAddr) -> Registration {
        let trusted = caldera_crds::trusted::TrustedWriters::default();
        Registration { client: self.webhook.clone(), url: format!("https://{address}"), trusted }
    }

    async fn serve(&self, listener: TcpListener, served: ServedTls) {
        let config = caldera_webhook::Config::new(listener, served);
        let (client, stop, ready) = (self.webhook.clone(), self.stop.clone(), config.ready.clone());
        tokio::spawn(async move { caldera_webhook::run(config, client, stop).await.unwrap() });
        let began = Instant::now();
        while !ready.is_ready() {
            assert!(began.elapsed() < AT_LAST, "it is never ready");
            tokio::time::sleep(PACE).await;
        }
    }

    /// What the API server is told to trust.
    async fn bundle(&self) -> String {
        let resource = objects::admission_resource("MutatingWebhookConfiguration", "mutatingwebhookconfigurations");
        let found = objects::get_object(&self.admin, &resource, None, "queue.caldera.dev").await.unwrap().unwrap();
        let encoded = read_text_at(&found.unwrap(), "/webhooks/0/clientConfig/caBundle").to_owned();
        String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap()
    }

    /// Somebody writes back what he read before a rotation; it is corrected.
    async fn overwrite_bundle(&self) {
        let good = self.bundle().await;
        let stale = STANDARD.encode(Authority::new("stale").unwrap().cert_pem);
        for (kind, plural) in [
            ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
            ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        ] {
            let resource = objects::admission_resource(kind, plural);
            let api: Api<kube::core::DynamicObject> = Api::all_with(self.admin.clone(), &resource);
            let patch = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": stale}]);
            let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
            api.patch("queue.caldera.dev", &PatchParams::default(), &patch).await.unwrap();
            let began = Instant::now();
            loop {
                let found = serde_json::to_value(api.get("queue.caldera.dev").await.unwrap()).unwrap();
                if read_text_at(&found, "/webhooks/0/clientConfig/caBundle") != stale {
                    break;
                }
                assert!(began.elapsed() < AT_LAST, "{kind} is never corrected");
                tokio::time::sleep(LOOK).await;
            }
        }
        assert_eq!(self.bundle().await, good);
    }

    /// Waits until the bundle is as wanted.
    async fn until_bundle(&self, is_wanted: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let bundle = self.bundle().await;
            if is_wanted(&bundle) {
                return bundle;
            }
            assert!(began.elapsed() < AT_LAST, "{bundle}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Reviews at a steady rate until `stop`: through the API server, which asks by connections that it keeps and fails
    /// closed, and by new connections of whoever trusts what the configurations say now. How many there were.
    async fn ask_steadily(&self, addresses: Vec<SocketAddr>, stop: CancellationToken) -> usize {
        let queues: Api<kube::core::DynamicObject> = Api::all_with(self.admin.clone(), &objects::queue_resource());
        let queue = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"},
            "spec": {"weight": 1},
        });
        let queue = serde_json::from_value(queue).unwrap();
        let dry_run = kube::api::PostParams { dry_run: true, ..kube::api::PostParams::default() };
        let count = || self.reviews.load(Ordering::Relaxed);
        while !stop.is_cancelled() {
            queues.create(&dry_run, &queue).await.unwrap_or_else(|error| panic!("review {}: {error}", count()));
            let bundle = self.bundle().await;
            for address in &addresses {
                connect(*address, &bundle)
                    .await
                    .unwrap_or_else(|error| panic!("connection {}: {error}\n{bundle}", count()));
            }
            self.reviews.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PACE).await;
        }
        count()
    }

    /// Waits until so many more reviews were answered.
    async fn until_reviewed(&self, more: usize) {
        let (began, before) = (Instant::now(), self.reviews.load(Ordering::Relaxed));
        while self.reviews.load(Ordering::Relaxed) < before + more {
            assert!(began.elapsed() < AT_LAST, "no {more} reviews since the {before}th");
            tokio::time::sleep(PACE).await;
        }
    }
}

async fn connect(address: SocketAddr, bundle: &str) -> std::io::Result<()> {
    let roots = parse_roots(bundle).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::from(address.ip());
    let tcp = TcpStream::connect(address).await?;
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map(drop)
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn count_certificates(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_authority_that_replicas_share_is_replaced_under_load_and_no_review_is_refused() {
    let world = World::start().await;
    let replicas = [listen(), listen()];
    let addresses = [replicas[0].1, replicas[1].1];
    for (listener, _) in replicas {
        let keeper = AuthorityKeeper {
            // One URL leads to both.
            registration: world.registration(addresses[0]),
            namespace: NAMESPACE.to_owned(),
            listen: LOCALHOST,
            client_ca: None,
            timing: RotationTiming { overlap: SignedDuration::from_secs(4), ..RotationTiming::default() },
            every: LOOK,
            expiry: CertificateExpiry::default(),
        };
        let served = keeper.start(&world.stop).await.unwrap();
        world.serve(listener, served).await;
    }
    let old = world.bundle().await;
    assert_eq!(count_certificates(&old), 1, "both replicas share one authority");
    world.overwrite_bundle().await;

    let rotated = CancellationToken::new();
    let rotate = async {
        let secrets: Api<Secret> = Api::namespaced(world.admin.clone(), NAMESPACE);
        let ask = json!({"metadata": {"annotations": {caldera::ROTATE: "true"}}});
        secrets.patch(AUTHORITY_SECRET, &PatchParams::default(), &Patch::Merge(ask)).await.unwrap();
        let both = world.until_bundle(|bundle| count_certificates(bundle) == 2).await;
        let new = world.until_bundle(|bundle| count_certificates(bundle) == 1).await;
        // A while with the new one alone.
        world.until_reviewed(5).await;
        rotated.cancel();
        (both, new, secrets.get(AUTHORITY_SECRET).await.unwrap())
    };
    let (count, (both, new, secret)) = tokio::join!(world.ask_steadily(addresses.to_vec(), rotated.clone()), rotate);
    assert!(both.contains(old.trim()) && both.contains(new.trim()) && old != new);
    assert!(count >= 5, "{count} reviews are no load");
    println!("{count} reviews");
    for address in addresses {
        assert!(connect(address, &old).await.is_err(), "what the old authority signed is served yet");
    }
    let data = secret.data.unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["tls.crt", "tls.key"]);
    assert!(secret.metadata.annotations.unwrap_or_default().is_empty());
    world.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admins_certificate_and_ca_are_replaced_under_load_and_no_review_is_refused() {
    let world = World::start().await;
    let (listener, address) = listen();
    let dir = tempfile::tempdir().unwrap();
    let [cert, key, ca] = ["tls.crt", "tls.key", "ca.crt"].map(|name| dir.path().join(name));
    let write = |path: &Path, text: &str| {
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    };
    // Of one name, as a CA that is made anew.
    let [old, new] = [(); 2].map(|()| Authority::new("ca").unwrap());
    let issue = |authority: &Authority| {
        let identity = authority.issue_server_identity("webhook", &["localhost"], &[LOCALHOST]).unwrap();
        write(&key, &identity.key_pem);
        write(&cert, &identity.cert_pem);
    };
    issue(&old);
    write(&ca, &old.cert_pem);
    let expiry = CertificateExpiry::default();
    follow_bundle(ca.clone(), world.registration(address), LOOK, expiry, &world.stop).await.unwrap();
    let files = vec![cert.clone(), key.clone()];
    let served = ServedTls::from_files(files, LOOK, |pems| {
        server_config(&Identity { cert_pem: pems[0].clone(), key_pem: pems[1].clone() })
    });
    world.serve(listener, served.unwrap()).await;

    let rotated = CancellationToken::new();
    let rotate = async {
        let both = format!("{}{}", old.cert_pem, new.cert_pem);
        write(&ca, &both);
        world.until_bundle(|bundle| bundle == both).await;
        issue(&new);
        let began = Instant::now();
        while connect(address, &new.cert_pem).await.is_err() {
            assert!(began.elapsed() < AT_LAST, "the new certificate is never served");
            tokio::time::sleep(LOOK).await;
        }
        // Half a file is not told to anybody.
        write(&ca, "-----BEGIN CERTIFICATE-----");
        tokio::time::sleep(LOOK * 5).await;
        assert_eq!(world.bundle().await, both);
        write(&ca, &new.cert_pem);
        world.until_bundle(|bundle| bundle == new.cert_pem).await;
        world.until_reviewed(5).await;
        rotated.cancel();
    };
    let (count, ()) = tokio::join!(world.ask_steadily(vec![address], rotated.clone()), rotate);
    assert!(count >= 5, "{count} reviews are no load");
    println!("{count} reviews");
    assert!(connect(address, &old.cert_pem).await.is_err());
    world.overwrite_bundle().await;
    world.stop.cancel();
}
