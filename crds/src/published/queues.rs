//! Encodes and decodes the member's own queues: which are there, in which state, and what their limits leave.

use caldera_core::{
    fleet::{MemberVolcanoQueue, Queues},
    resources::Limits,
};
use k8s_openapi::apimachinery::pkg::api::resource;

use super::{Malformed, MemberQueue, Part, amount::decode_amount};

pub(super) fn encode_queues(queues: &Queues) -> Vec<MemberQueue> {
    let one = |(name, queue): (&String, &MemberVolcanoQueue)| MemberQueue {
        name: name.clone(),
        state: queue.state.clone(),
        left: queue
            .compute_quota_left()
            .iter()
            .map(|(name, left)| (name.to_string(), resource::Quantity(left.to_string())))
            .collect(),
    };
    queues.iter().map(one).collect()
}

/// Decodes the queues of a part. What a queue's limit leaves becomes the decoded queue's capability.
pub(super) fn decode_queues(part: &Part) -> Result<Queues, Malformed> {
    let one = |queue: &MemberQueue| {
        let mut left = Limits::unlimited();
        for (name, amount) in &queue.left {
            left.set(name.as_str(), decode_amount(name, amount)?);
        }
        Ok((
            queue.name.clone(),
            MemberVolcanoQueue { state: queue.state.clone(), capability: left, ..MemberVolcanoQueue::default() },
        ))
    };
    part.queues.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use caldera_core::quantity::Quantity;

    use super::*;

    #[test]
    fn queues_come_back_with_their_states_and_what_they_leave() {
        let mut small = MemberVolcanoQueue { state: "Open".into(), ..MemberVolcanoQueue::default() };
        small.capability.set("cpu", Quantity::from_units(8));
        small.capability.set("nvidia.com/gpu", Quantity::ZERO);
        small.allocated.set("cpu", Quantity::from_units(3));
        let closed = MemberVolcanoQueue { state: "Closed".into(), ..MemberVolcanoQueue::default() };
        let open = MemberVolcanoQueue { state: "Open".into(), ..MemberVolcanoQueue::default() };
        let all: Queues = [("small", small), ("closed", closed), ("open", open)]
            .into_iter()
            .map(|(name, queue)| (name.to_owned(), queue))
            .collect();
        let part = Part { queues: encode_queues(&all), ..Part::default() };
        let back = decode_queues(&part).unwrap();
        assert_eq!(back.keys().collect::<Vec<_>>(), ["closed", "open", "small"]);
        assert!(back["closed"].is_closed());
        assert_eq!(
            (back["small"].compute_quota_left(), back["small"].is_closed()),
            (all["small"].compute_quota_left(), false)
        );
        assert_eq!(encode_queues(&back), part.queues);
        let mut wrong = part;
        wrong.queues[2].left.values_mut().for_each(|amount| amount.0 = "lots".into());
        assert!(matches!(decode_queues(&wrong), Err(Malformed::Amount(..))));
    }
}
