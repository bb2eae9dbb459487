//! Which granted verbs are used: what the roles of components grant is compared with it after all tests ran.
//!
//! Each process writes into a file of its own in the folder that [`FOLDER`] names: a line for each user, verb and
//! resource, once. Nothing is written where it names none.

use std::{
    collections::BTreeSet,
    env, fs,
    io::Write as _,
    path::PathBuf,
    process,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use embedded_apiserver::{GrantObserver, GrantedRequest};

/// Environment variable: a folder that exists.
const FOLDER: &str = "CALDERA_USED_VERBS";

/// What the servers of this process saw.
static SEEN: LazyLock<Mutex<BTreeSet<String>>> = LazyLock::new(Mutex::default);

/// What writes down the verbs that are used, if that is asked for.
pub(crate) fn record_used_verbs() -> Option<GrantObserver> {
    let folder = PathBuf::from(env::var_os(FOLDER)?);
    let file = folder.join(process::id().to_string());
    Some(Arc::new(move |request| {
        let line = describe_use(request);
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.insert(line.clone())
            && let Err(error) =
                fs::File::options().create(true).append(true).open(&file).and_then(|mut file| writeln!(file, "{line}"))
        {
            tracing::warn!(file = %file.display(), %error, "a verb that was used is not written down");
        }
    }))
}

/// `<user> <verb> <group>/<resource>[/<subresource>]`.
fn describe_use(request: &GrantedRequest<'_>) -> String {
    let GrantedRequest { user, verb, group, resource, subresource } = request;
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{user} {verb} {group}/{resource}{slash}{subresource}")
}
