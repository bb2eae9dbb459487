//! What a Work may not bring to a member because no queue was charged for it: anything under a name of ours without a
//! record.
//!
//! Rule: "no record, no start" counts for whatever reaches a member, not only for what had a gate when it was made. A
//! binding without a gate and without a record was admitted by nobody. So what its Works carry is no Volcano Job, and
//! names no queue for its pods, whatever kind it is and whichever version it comes in
//! ([`find_sent_queue`]): its own workload, which an override or an edit gave a queue after it was placed, or which was
//! placed while no gate was closed; what an override made of it, which may not be in a namespace that opted in
//! either; and what can not be queued at all, such as a DaemonSet. A Work that is of no binding names none. What names
//! none is everybody's, and goes untouched.
//!
//! After an upgrade nothing that was let out by its gate is stranded: the gate and the record stay on the binding for
//! as long as the workload is there, so its copies are held against the record as before, and pass if they are what was
//! charged. What an older version let out without a gate goes on in its member: a Work whose manifests do not change is
//! not refused. A change of it is, even one that leaves the queue's name as it was, for more pods would come under that
//! name and nobody is charged. Its user takes the name off, or has its binding made anew and waits in line.

use caldera_core::{gang::QueueName, text::shorten_text};
use caldera_crds::{
    object::{name_of, read_text_at},
    workload::{WorkloadKind, find_sent_queue},
};
use serde_json::Value;

use crate::observe::cache::{BindingKey, CachedBinding, Snapshot};

/// Why these manifests of a binding that has neither gate nor record may not go to a member, if one of them may not.
pub(super) fn find_unadmitted_copy(
    manifests: &[Value],
    binding: &CachedBinding,
    key: &BindingKey,
    snapshot: Snapshot<'_>,
) -> Option<String> {
    let is_own = |copy: &Value| binding.workload.as_ref().is_some_and(|own| own.is_of(copy));
    let namespaces = |copy| [key.0.as_str(), read_text_at(copy, "/metadata/namespace")];
    manifests.iter().find_map(|copy| {
        if is_own(copy) {
            return explain_unadmitted_workload(copy, key);
        }
        let could_be_queued = WorkloadKind::of_object(copy).is_some();
        if could_be_queued && (find_sent_queue(copy).is_some() || snapshot.find_opted_in(namespaces(copy)).is_some()) {
            return Some("no override may make a queued workload of what is none: it was never admitted".to_owned());
        }
        explain_foreign_queue(copy)
    })
}

/// The same of a Work that Karmada made of no binding in a namespace. What is in none, such as a policy of a member's
/// own that gives pods their queue, is a fleet admin's.
pub(super) fn find_unbound_copy(manifests: &[Value]) -> Option<String> {
    let is_in_namespace = |copy: &&Value| !read_text_at(copy, "/metadata/namespace").is_empty();
    manifests.iter().filter(is_in_namespace).find_map(explain_foreign_queue)
}

fn explain_unadmitted_workload(copy: &Value, (namespace, name): &BindingKey) -> Option<String> {
    let queue = report_queue(&find_sent_queue(copy)?);
    Some(format!(
        "its pods would be in queue {queue} of the member, and no queue was charged for them, for it named none when it \
         was placed, or nobody asked Caldera then: leave the queue's name out, in override policies too, or delete \
         ResourceBinding {namespace}/{name}, which ends what runs of it, and then name the queue on the workload: \
         Karmada makes the binding anew, and it waits in line"
    ))
}

fn explain_foreign_queue(copy: &Value) -> Option<String> {
    let queue = report_queue(&find_sent_queue(copy)?);
    let (kind, namespace) = (read_text_at(copy, "/kind"), read_text_at(copy, "/metadata/namespace"));
    let name = name_of(copy);
    Some(format!(
        "{kind} {namespace}/{name} does not go to members, where its pods would be in queue {queue}, and no queue was \
         charged for them: this kind waits in no line here, so leave the queue's name out, in override policies too"
    ))
}

fn report_queue(queue: &QueueName) -> String {
    shorten_text(queue.as_str())
}
