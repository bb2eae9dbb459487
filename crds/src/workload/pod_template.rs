//! Reads what one pod of a template requests, and which nodes may run it.
//!
//! Rule: Kubernetes `component-helpers/resource/helpers.go` for requests, `component-helpers/scheduling/corev1` for
//! node selectors, affinity and tolerations. What a pod claims of devices is in what it requests ([`device_claims`]).

use std::{borrow::Cow, collections::BTreeMap};

use caldera_core::{
    card_choice::read_card_models,
    card_model::label_of_model,
    device::unify_resource_name,
    gang::{NodeClaim, NodeTerm, Operator, PreferredTerm, Requirement, Toleration},
    quantity::Quantity,
    resources::{ResourceName, Resources},
};

use serde_json::{Value, json};

use super::{GangError, device_claims, field::Field};
use crate::names::volcano::CARD_NAME;

/// What one pod takes from a node: the sum of its containers and sidecars, or the peak of its init containers if that
/// is more. Pod-level requests replace that sum. The pod's overhead, what it claims of devices and one of the node's
/// pods are added.
pub(super) fn read_request(pod: &Field<'_>) -> Result<Resources, GangError> {
    let mut request = sum_pod_request(pod, |amount| amount.quantity().map(Some))?;
    request.add(&device_claims::read_claimed(pod)?);
    check_names(pod, &request)?;
    Ok(request)
}

/// Not every kind's API checks the names of resources. One of a card model would be charged as if the pod were kept to
/// that model.
fn check_names(pod: &Field<'_>, request: &Resources) -> Result<(), GangError> {
    let place = pod.at(&["spec"]);
    let place = place.as_ref().unwrap_or(pod);
    match request.iter().find(|(name, _)| name.is_card()) {
        Some((name, _)) => Err(place.wrong(format!(
            "its pod asks for {:?}, which is no name of a resource: a card's model is named by a nodeSelector",
            name.as_str()
        ))),
        None => Ok(()),
    }
}

/// The same for an existing pod: an amount that can not be parsed counts as zero.
pub(super) fn read_existing_pod_request(pod: &Field<'_>) -> Resources {
    sum_pod_request(pod, |amount| Ok(amount.quantity().ok())).unwrap_or_else(|_| one_pod())
}

fn sum_pod_request(pod: &Field<'_>, read: Read) -> Result<Resources, GangError> {
    let Some(spec) = pod.at(&["spec"]) else { return Ok(one_pod()) };
    let mut total = Resources::new();
    for container in spec.list("containers")? {
        total.add(&container_request(&container, read)?);
    }
    let (sidecars, peak) = sum_init_container_requests(&spec, read)?;
    total.add(&sidecars);
    let mut total = total.max(&peak);
    for (name, amount) in container_request(&spec, read)?.iter().filter(|(name, _)| is_pod_level(name)) {
        total.set(name.clone(), amount);
    }
    let overhead = read_amounts(&spec, &["overhead"], read)?;
    total.add(&overhead.into_iter().map(|(name, amount)| (ResourceName::from(name.as_ref()), amount)).collect());
    total.add(&one_pod());
    Ok(total)
}

/// An amount, `None` to leave it out.
type Read = fn(&Field<'_>) -> Result<Option<Quantity>, GangError>;

fn read_amounts<'a>(
    at: &Field<'a>,
    fields: &[&str],
    read: Read,
) -> Result<BTreeMap<Cow<'a, str>, Quantity>, GangError> {
    let read = |(name, place)| Ok(read(&place)?.map(|amount| (unify_resource_name(name), amount)));
    at.entries(fields)?.into_iter().filter_map(|entry| read(entry).transpose()).collect()
}

fn one_pod() -> Resources {
    [(ResourceName::PODS, Quantity::from_units(1))].into_iter().collect()
}

/// Sidecars (init containers that restart always) run on beside all that start after them; the others run one by one.
fn sum_init_container_requests(spec: &Field<'_>, read: Read) -> Result<(Resources, Resources), GangError> {
    let (mut sidecars, mut peak) = (Resources::new(), Resources::new());
    for container in spec.list("initContainers")? {
        let stays = container.text_at("restartPolicy")? == "Always";
        // Of what it does not ask for it changes nothing: the peak holds the sidecars before it already.
        for (name, own) in container_request(&container, read)?.iter() {
            let now = sidecars.get(name.as_str()).saturating_add(own);
            peak.set(name.clone(), peak.get(name.as_str()).max(now));
            if stays {
                sidecars.set(name.clone(), now);
            }
        }
    }
    Ok((sidecars, peak))
}

/// `resources.requests`, with the limit where there is no request. A request of zero counts as a request.
fn container_request(container: &Field<'_>, read: Read) -> Result<Resources, GangError> {
    let mut request = read_amounts(container, &["resources", "limits"], read)?;
    request.extend(read_amounts(container, &["resources", "requests"], read)?);
    Ok(request.into_iter().map(|(name, amount)| (ResourceName::from(name.as_ref()), amount)).collect())
}

/// Whether a resource may be requested at pod level, in `spec.resources`.
fn is_pod_level(name: &ResourceName) -> bool {
    [ResourceName::CPU, ResourceName::MEMORY].contains(&name.as_str()) || name.as_str().starts_with("hugepages-")
}

/// The template's PriorityClass, empty for none.
pub(super) fn priority_class<'a>(pod: &Field<'a>) -> &'a str {
    pod.at(&["spec", "priorityClassName"]).and_then(|place| place.value.as_str()).unwrap_or("")
}

/// Whether a pod's spec asks for cards of the resource of a model, and may use more than one model of it; false where
/// it can not be read.
#[must_use]
pub fn leaves_model_open(spec: &Value, card: &ResourceName) -> bool {
    let Some((resource, _)) = card.as_card() else { return false };
    let pod = json!({"spec": spec});
    let pod = Field::unnamed(&pod);
    let (Ok(request), Ok(claim)) = (read_request(&pod), node_claim(&pod)) else { return false };
    !request.get(resource).is_zero() && claim.find_only_value(&label_of_model(resource)).is_none()
}

/// Where preferences are, how many of them count, and the most that one weighs: Kubernetes' own limit.
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const MOST_PREFERRED_TERMS: usize = 16;
/// A term with more values than this is asked of no node.
const MOST_PREFERRED_VALUES: usize = 64;
const MOST_WEIGHT: u32 = 100;

/// Selector, node affinity and tolerations, and the card models that an annotation names.
pub(super) fn node_claim(pod: &Field<'_>) -> Result<NodeClaim, GangError> {
    let Some(spec) = pod.at(&["spec"]) else { return Ok(NodeClaim::default()) };
    let cards = pod.at(&["metadata", "annotations", CARD_NAME]).and_then(|text| text.value.as_str());
    let mut claim = NodeClaim { cards: cards.map(read_card_models).unwrap_or_default(), ..NodeClaim::default() };
    for (key, value) in spec.entries(&["nodeSelector"])? {
        claim.selector.insert(key.to_owned(), value.text()?.to_owned());
    }
    let required = ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    if let Some(required) = spec.at(&required) {
        for term in required.list("nodeSelectorTerms")? {
            let term = read_term(&term)?;
            // A term without expressions matches no node, so it adds nothing to the other terms.
            if term != NodeTerm::default() {
                claim.affinity.push(term);
            }
        }
        if claim.affinity.is_empty() {
            return Err(required.wrong("no term has an expression, so no node can ever match"));
        }
    }
    claim.preferred = read_preferred_terms(&spec)?;
    for toleration in spec.list("tolerations")? {
        claim.tolerations.push(Toleration {
            key: toleration.text_at("key")?.to_owned(),
            exists: toleration.text_at("operator")? == "Exists",
            value: toleration.text_at("value")?.to_owned(),
            effect: toleration.text_at("effect")?.to_owned(),
        });
    }
    Ok(claim)
}

fn read_term(term: &Field<'_>) -> Result<NodeTerm, GangError> {
    Ok(NodeTerm {
        labels: read_requirements(term, "matchExpressions")?,
        fields: read_requirements(term, "matchFields")?,
    })
}

/// Terms that are preferred; the first of them, for each node is looked at by each. One that is empty says nothing.
fn read_preferred_terms(spec: &Field<'_>) -> Result<Vec<PreferredTerm>, GangError> {
    let Some(affinity) = spec.at(&["affinity", "nodeAffinity"]) else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for preferred in affinity.list(PREFERRED)?.into_iter().take(MOST_PREFERRED_TERMS) {
        let weight = preferred.at(&["weight"]).map_or(Ok(0), |weight| weight.parse_count())?;
        let term = preferred.at(&["preference"]).map_or(Ok(NodeTerm::default()), |term| read_term(&term))?;
        if weight > 0 && term != NodeTerm::default() && term.count_values() <= MOST_PREFERRED_VALUES {
            all.push(PreferredTerm { weight: weight.min(MOST_WEIGHT), term });
        }
    }
    Ok(all)
}

fn read_requirements(term: &Field<'_>, field: &str) -> Result<Vec<Requirement>, GangError> {
    term.list(field)?
        .iter()
        .map(|expression| {
            let values = expression.list("values")?;
            Ok(Requirement {
                key: expression.text_at("key")?.to_owned(),
                operator: read_operator(expression)?,
                values: values.iter().map(|value| Ok(value.text()?.to_owned())).collect::<Result<_, _>>()?,
            })
        })
        .collect()
}

fn read_operator(expression: &Field<'_>) -> Result<Operator, GangError> {
    let word = expression.text_at("operator")?;
    let unknown = || format!("{word:?} is not an operator; there are In, NotIn, Exists, DoesNotExist, Gt and Lt");
    Operator::parse(word).ok_or_else(|| expression.wrong(unknown()))
}
