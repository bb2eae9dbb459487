//! A job's volumes (`createJobIOIfNotExist`): a volume without a claim's name gets a generated one, written into the
//! job's spec, and a claim of that name; a named claim must be there, or the job waits.

use serde_json::{Value, json};

use super::key_of;
use crate::member::{
    object::{list, name, namespace, owned_by, text, uid},
    world::{Kind, Want, World, want_create, want_merge},
};

#[derive(Debug, Default)]
pub(super) struct Volumes {
    pub(super) wants: Vec<Want>,
    /// The job can not go on yet.
    pub(super) blocked: bool,
}

pub(super) fn volume_changes(world: &World, job: &Value) -> Volumes {
    let volumes = list(job, "/spec/volumes");
    if volumes.iter().any(|volume| text(volume, "/volumeClaimName").is_empty()) {
        let named: Vec<Value> =
            volumes.iter().enumerate().map(|(index, volume)| with_name(job, index, volume)).collect();
        return Volumes {
            wants: vec![want_merge(Kind::VolcanoJob, job, None, json!({"spec": {"volumes": named}}))],
            blocked: true,
        };
    }
    let mut found = Volumes::default();
    for (index, volume) in volumes.iter().enumerate() {
        let claim = text(volume, "/volumeClaimName");
        if world.get(Kind::PersistentVolumeClaim, &key_of(job, claim)).is_some() {
            continue;
        }
        found.blocked = true;
        // Only a claim that was named here is made here.
        let generated = claim == generated_name(job, index);
        if let Some(spec) = volume.get("volumeClaim").filter(|spec| generated && spec.is_object()) {
            found.wants.push(want_create(
                Kind::PersistentVolumeClaim,
                json!({
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "metadata": {"name": claim, "namespace": namespace(job), "ownerReferences": owned_by(job)},
                    "spec": spec,
                }),
            ));
        }
    }
    found
}

fn with_name(job: &Value, index: usize, volume: &Value) -> Value {
    let mut volume = volume.clone();
    if text(&volume, "/volumeClaimName").is_empty() {
        volume["volumeClaimName"] = generated_name(job, index).into();
    }
    volume
}

/// Volcano's twelve random characters; here they follow from the UID, and so differ by cluster as well.
fn generated_name(job: &Value, index: usize) -> String {
    format!("{}-pvc-{}", name(job), scramble_text(&format!("{}/{index}", uid(job)), 12))
}

/// `length` characters of `0-9a-z` that follow from `seed`.
#[must_use]
pub fn scramble_text(seed: &str, length: usize) -> String {
    const ALPHABET: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = seed.bytes().fold(0xcbf2_9ce4_8422_2325_u64, fold);
    let mut text = String::with_capacity(length);
    for _ in 0..length {
        hash = fold(hash.rotate_left(23), 0x5b);
        let index = usize::try_from(hash % 36).unwrap_or_default();
        text.extend(ALPHABET.get(index).map(|byte| char::from(*byte)));
    }
    text
}
