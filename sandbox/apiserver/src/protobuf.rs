//! Kubernetes' protobuf bodies: an envelope (`k8s\0`, `runtime.Unknown`) around a message of the kind. The kinds that
//! kubectl sends this way are described in one table; zero values that Go would leave out of JSON are dropped.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base64::Engine;
use serde_json::{Map, Value};

/// One message a line: number, JSON name, type. `[]` a list, `map:` a map from text, `?` an optional value whose zero
/// counts, `!` a number that JSON always has, `<<` a message whose members belong to the parent.
const MESSAGES: &str = "
ObjectMeta: 1 name s, 2 generateName s, 3 namespace s, 5 uid s, 6 resourceVersion s, 7 generation i, 8 creationTimestamp Time, 9 deletionTimestamp Time, 10 deletionGracePeriodSeconds i?, 11 labels map:s, 12 annotations map:s, 13 ownerReferences []OwnerReference, 14 finalizers []s
OwnerReference: 1 kind s, 3 name s, 4 uid s, 5 apiVersion s, 6 controller b?, 7 blockOwnerDeletion b?
LabelSelector: 1 matchLabels map:s, 2 matchExpressions []LabelRequirement
LabelRequirement: 1 key s, 2 operator s, 3 values []s
ConfigMap: 1 metadata ObjectMeta, 2 data map:s, 3 binaryData map:y, 4 immutable b?
Namespace: 1 metadata ObjectMeta, 2 spec NamespaceSpec
NamespaceSpec: 1 finalizers []s
Secret: 1 metadata ObjectMeta, 2 data map:y, 3 type s, 4 stringData map:s, 5 immutable b?
ServiceAccount: 1 metadata ObjectMeta, 3 imagePullSecrets []NameRef, 4 automountServiceAccountToken b?
NameRef: 1 name s
Pod: 1 metadata ObjectMeta, 2 spec PodSpec
PodTemplateSpec: 1 metadata ObjectMeta, 2 spec PodSpec
PodSpec: 2 containers []Container, 3 restartPolicy s, 4 terminationGracePeriodSeconds i?, 5 activeDeadlineSeconds i?, 6 dnsPolicy s, 7 nodeSelector map:s, 8 serviceAccountName s, 9 serviceAccount s, 10 nodeName s, 11 hostNetwork b, 12 hostPID b, 13 hostIPC b, 15 imagePullSecrets []NameRef, 16 hostname s, 17 subdomain s, 19 schedulerName s, 20 initContainers []Container, 21 automountServiceAccountToken b?, 22 tolerations []Toleration, 24 priorityClassName s, 25 priority i?, 30 enableServiceLinks b?, 31 preemptionPolicy s?
Toleration: 1 key s, 2 operator s, 3 value s, 4 effect s, 5 tolerationSeconds i?
Container: 1 name s, 2 image s, 3 command []s, 4 args []s, 5 workingDir s, 6 ports []ContainerPort, 7 env []EnvVar, 8 resources Resources, 9 volumeMounts []VolumeMount, 13 terminationMessagePath s, 14 imagePullPolicy s, 16 stdin b, 17 stdinOnce b, 18 tty b, 20 terminationMessagePolicy s
ContainerPort: 1 name s, 2 hostPort i, 3 containerPort i!, 4 protocol s, 5 hostIP s
EnvVar: 1 name s, 2 value s
VolumeMount: 1 name s, 2 readOnly b, 3 mountPath s, 4 subPath s
Resources: 1 limits map:Quantity, 2 requests map:Quantity
Deployment: 1 metadata ObjectMeta, 2 spec DeploymentSpec
DeploymentSpec: 1 replicas i?, 2 selector LabelSelector, 3 template PodTemplateSpec, 4 strategy DeploymentStrategy, 5 minReadySeconds i, 6 revisionHistoryLimit i?, 7 paused b, 9 progressDeadlineSeconds i?
DeploymentStrategy: 1 type s, 2 rollingUpdate RollingUpdate
RollingUpdate: 1 maxUnavailable IntOrString, 2 maxSurge IntOrString
Job: 1 metadata ObjectMeta, 2 spec JobSpec
JobSpec: 1 parallelism i?, 2 completions i?, 3 activeDeadlineSeconds i?, 4 selector LabelSelector, 5 manualSelector b?, 6 template PodTemplateSpec, 7 backoffLimit i?, 8 ttlSecondsAfterFinished i?, 9 completionMode s?, 10 suspend b?
CronJob: 1 metadata ObjectMeta, 2 spec CronJobSpec
CronJobSpec: 1 schedule s, 2 startingDeadlineSeconds i?, 3 concurrencyPolicy s, 4 suspend b?, 5 jobTemplate JobTemplate, 6 successfulJobsHistoryLimit i?, 7 failedJobsHistoryLimit i?, 8 timeZone s?
JobTemplate: 1 metadata ObjectMeta, 2 spec JobSpec
Role: 1 metadata ObjectMeta, 2 rules []PolicyRule
ClusterRole: 1 metadata ObjectMeta, 2 rules []PolicyRule, 3 aggregationRule AggregationRule
AggregationRule: 1 clusterRoleSelectors []LabelSelector
PolicyRule: 1 verbs []s, 2 apiGroups []s, 3 resources []s, 4 resourceNames []s, 5 nonResourceURLs []s
RoleBinding: 1 metadata ObjectMeta, 2 subjects []Subject, 3 roleRef RoleRef
ClusterRoleBinding: 1 metadata ObjectMeta, 2 subjects []Subject, 3 roleRef RoleRef
Subject: 1 kind s, 2 apiGroup s, 3 name s, 4 namespace s
RoleRef: 1 apiGroup s, 2 kind s, 3 name s
ResourceQuota: 1 metadata ObjectMeta, 2 spec QuotaSpec
QuotaSpec: 1 hard map:Quantity, 2 scopes []s
PriorityClass: 1 metadata ObjectMeta, 2 value i!, 3 globalDefault b, 4 description s, 5 preemptionPolicy s?
PodDisruptionBudget: 1 metadata ObjectMeta, 2 spec BudgetSpec
BudgetSpec: 1 minAvailable IntOrString, 2 selector LabelSelector, 3 maxUnavailable IntOrString, 4 unhealthyPodEvictionPolicy s?
Service: 1 metadata ObjectMeta, 2 spec ServiceSpec
ServiceSpec: 1 ports []ServicePort, 2 selector map:s, 3 clusterIP s, 4 type s, 5 externalIPs []s, 7 sessionAffinity s, 8 loadBalancerIP s, 10 externalName s, 11 externalTrafficPolicy s, 13 publishNotReadyAddresses b, 17 ipFamilyPolicy s?, 18 clusterIPs []s, 19 ipFamilies []s
ServicePort: 1 name s, 2 protocol s, 3 port i!, 4 targetPort IntOrString, 5 nodePort i, 6 appProtocol s?
Ingress: 1 metadata ObjectMeta, 2 spec IngressSpec
IngressSpec: 1 defaultBackend IngressBackend, 2 tls []IngressTls, 3 rules []IngressRule, 4 ingressClassName s?
IngressTls: 1 hosts []s, 2 secretName s
IngressRule: 1 host s, 2 rule <<IngressRuleValue
IngressRuleValue: 1 http IngressPaths
IngressPaths: 1 paths []IngressPath
IngressPath: 1 path s, 2 backend IngressBackend, 3 pathType s?
IngressBackend: 4 service IngressService
IngressService: 1 name s, 2 port IngressPort
IngressPort: 1 name s, 2 number i
HorizontalPodAutoscaler: 1 metadata ObjectMeta, 2 spec AutoscalerSpec
HorizontalPodAutoscaler autoscaling/v1: 1 metadata ObjectMeta, 2 spec OldAutoscalerSpec
OldAutoscalerSpec: 1 scaleTargetRef TargetRef, 2 minReplicas i?, 3 maxReplicas i!, 4 targetCPUUtilizationPercentage i?
AutoscalerSpec: 1 scaleTargetRef TargetRef, 2 minReplicas i?, 3 maxReplicas i!, 4 metrics []Metric
TargetRef: 1 kind s, 2 name s, 3 apiVersion s
Metric: 1 type s, 4 resource ResourceMetric
ResourceMetric: 1 name s, 2 target MetricTarget
MetricTarget: 1 type s, 2 value Quantity, 3 averageValue Quantity, 4 averageUtilization i?
SelfSubjectAccessReview: 1 metadata ObjectMeta, 2 spec AccessSpec
AccessSpec: 1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes PathAttributes
ResourceAttributes: 1 namespace s, 2 verb s, 3 group s, 4 version s, 5 resource s, 6 subresource s, 7 name s
PathAttributes: 1 path s, 2 verb s
SelfSubjectRulesReview: 1 metadata ObjectMeta, 2 spec RulesSpec
RulesSpec: 1 namespace s
SelfSubjectReview: 1 metadata ObjectMeta
TokenRequest: 1 metadata ObjectMeta, 2 spec TokenSpec
TokenSpec: 1 audiences []s, 3 boundObjectRef BoundRef, 4 expirationSeconds i?
BoundRef: 1 kind s, 2 apiVersion s, 3 name s, 4 uid s
Eviction: 1 metadata ObjectMeta, 2 deleteOptions DeleteOptions
DeleteOptions: 1 gracePeriodSeconds i?, 2 preconditions Preconditions, 3 orphanDependents b?, 4 propagationPolicy s?, 5 dryRun []s
Preconditions: 1 uid s?, 2 resourceVersion s?
Binding: 1 metadata ObjectMeta, 2 target ObjectReference
ObjectReference: 1 kind s, 2 namespace s, 3 name s, 4 uid s, 5 apiVersion s, 6 resourceVersion s, 7 fieldPath s
";

#[derive(Debug, Clone)]
struct Field {
    name: String,
    of: Type,
    shape: Shape,
    keep_zero: bool,
}

#[derive(Debug, Clone)]
enum Type {
    Text,
    Integer,
    Boolean,
    Bytes,
    Message(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    One,
    List,
    Map,
    Inline,
}

type Message = BTreeMap<u64, Field>;

static TABLE: LazyLock<BTreeMap<&'static str, Message>> = LazyLock::new(|| {
    let lines = MESSAGES.lines().filter_map(|line| line.split_once(": "));
    lines.map(|(name, fields)| (name, fields.split(", ").filter_map(parse_field).collect())).collect()
});

fn parse_field(text: &str) -> Option<(u64, Field)> {
    let mut parts = text.split(' ');
    let (number, name, kind) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
    let keep_zero = kind.ends_with(['?', '!']);
    let kind = kind.trim_end_matches(['?', '!']);
    let (shape, kind) = if let Some(kind) = kind.strip_prefix("[]") {
        (Shape::List, kind)
    } else if let Some(kind) = kind.strip_prefix("map:") {
        (Shape::Map, kind)
    } else if let Some(kind) = kind.strip_prefix("<<") {
        (Shape::Inline, kind)
    } else {
        (Shape::One, kind)
    };
    let of = match kind {
        "s" => Type::Text,
        "i" => Type::Integer,
        "b" => Type::Boolean,
        "y" => Type::Bytes,
        message => Type::Message(message.to_owned()),
    };
    Some((number, Field { name: name.to_owned(), of, shape, keep_zero }))
}

/// A field as it is on the wire.
enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or("unexpected EOF")?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("proto: integer overflow".into())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let taken = self.0.get(..length).ok_or("unexpected EOF")?;
        self.0 = self.0.get(length..).unwrap_or_default();
        Ok(taken)
    }

    /// The next field that is a number or has a length; fixed-size ones are skipped (no known kind has any).
    fn next(&mut self) -> Result<Option<(u64, Wire<'a>)>, String> {
        while !self.0.is_empty() {
            let tag = self.varint()?;
            match tag & 7 {
                0 => return Ok(Some((tag >> 3, Wire::Varint(self.varint()?)))),
                2 => {
                    let length = usize::try_from(self.varint()?).map_err(|_| "proto: length overflow")?;
                    return Ok(Some((tag >> 3, Wire::Bytes(self.take(length)?))));
                }
                1 => drop(self.take(8)?),
                5 => drop(self.take(4)?),
                other => return Err(format!("proto: illegal wireType {other}")),
            }
        }
        Ok(None)
    }
}

/// The object in a protobuf body.
pub fn decode_body(bytes: &[u8]) -> Result<Value, String> {
    let envelope = bytes.strip_prefix(b"k8s\0").ok_or("provided data does not appear to be a protobuf message")?;
    let mut reader = Reader(envelope);
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => {
                let mut reader = Reader(bytes);
                while let Some((number, wire)) = reader.next()? {
                    match (number, wire) {
                        (1, Wire::Bytes(text)) => api_version = decode_utf8(text)?,
                        (2, Wire::Bytes(text)) => kind = decode_utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    // Most kinds have one form only; the others say which.
    let exact = format!("{kind} {api_version}");
    let name = if TABLE.contains_key(exact.as_str()) { &exact } else { &kind };
    if !TABLE.contains_key(name.as_str()) {
        return Err(format!("kind {kind} of {api_version} is not known in protobuf"));
    }
    let mut object = decode_message(name, raw)?;
    object.insert("kind".into(), kind.into());
    object.insert("apiVersion".into(), api_version.into());
    Ok(Value::Object(object))
}

fn decode_utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "proto: invalid UTF-8".into())
}

fn decode_message(name: &str, bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let mut out = Map::new();
    let Some(fields) = TABLE.get(name) else { return Ok(out) };
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        let Some(field) = fields.get(&number) else { continue };
        match field.shape {
            Shape::One => {
                let value = decode_value(&field.of, &wire)?;
                if field.keep_zero || !is_zero(&value) {
                    out.insert(field.name.clone(), value);
                }
            }
            Shape::List => {
                let item = decode_value(&field.of, &wire)?;
                if let Value::Array(list) = out.entry(&field.name).or_insert_with(|| Value::Array(Vec::new())) {
                    list.push(item);
                }
            }
            Shape::Map => {
                let Wire::Bytes(entry) = wire else { continue };
                let (key, item) = map_entry(&field.of, entry)?;
                if let Value::Object(map) = out.entry(&field.name).or_insert_with(|| Value::Object(Map::new())) {
                    map.insert(key, item);
                }
            }
            Shape::Inline => {
                if let Value::Object(members) = decode_value(&field.of, &wire)? {
                    out.extend(members);
                }
            }
        }
    }
    Ok(out)
}

/// What Go leaves out: empty texts, zero numbers, false, and times that were never set. Empty messages stay.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        _ => false,
    }
}

fn map_entry(of: &Type, bytes: &[u8]) -> Result<(String, Value), String> {
    let mut reader = Reader(bytes);
    let (mut key, mut item) = (String::new(), Value::from(""));
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Bytes(text)) => key = decode_utf8(text)?,
            (2, wire) => item = decode_value(of, &wire)?,
            _ => {}
        }
    }
    Ok((key, item))
}

fn decode_value(of: &Type, wire: &Wire<'_>) -> Result<Value, String> {
    Ok(match (of, wire) {
        (Type::Text, Wire::Bytes(bytes)) => decode_utf8(bytes)?.into(),
        (Type::Bytes, Wire::Bytes(bytes)) => base64::engine::general_purpose::STANDARD.encode(bytes).into(),
        // Negative numbers are two's complement in 64 bits.
        (Type::Integer, Wire::Varint(number)) => number.cast_signed().into(),
        (Type::Boolean, Wire::Varint(number)) => (*number != 0).into(),
        (Type::Message(name), Wire::Bytes(bytes)) => match name.as_str() {
            "Time" => decode_time(bytes)?,
            "Quantity" => single_text(bytes)?,
            "IntOrString" => int_or_string(bytes)?,
            name => Value::Object(decode_message(name, bytes)?),
        },
        _ => return Err("proto: wrong wireType".into()),
    })
}

fn decode_time(bytes: &[u8]) -> Result<Value, String> {
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        if let (1, Wire::Varint(seconds)) = (number, wire) {
            let time = jiff::Timestamp::from_second(seconds.cast_signed()).map_err(|e| e.to_string())?;
            return Ok(crate::clock::write_seconds(time).into());
        }
    }
    Ok(Value::Null)
}

fn single_text(bytes: &[u8]) -> Result<Value, String> {
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        if let (1, Wire::Bytes(text)) = (number, wire) {
            return Ok(decode_utf8(text)?.into());
        }
    }
    Ok(Value::Null)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let mut reader = Reader(bytes);
    let (mut is_text, mut number_value, mut text) = (false, 0_u64, String::new());
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Varint(kind)) => is_text = kind == 1,
            (2, Wire::Varint(value)) => number_value = value,
            (3, Wire::Bytes(bytes)) => text = decode_utf8(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { number_value.cast_signed().into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_config_map_as_kubectl_sends_it() {
        let body = b"k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x1b\n\x11\n\x01c\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00\x12\x06\n\x01a\x12\x01b\x1a\x00\"\x00";
        let object = decode_body(body).unwrap();
        assert_eq!(
            object,
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": {"a": "b"}})
        );
    }

    #[test]
    fn broken_bodies_are_refused() {
        assert!(decode_body(b"{}").is_err());
        assert!(decode_body(b"k8s\x00\n\x7f").is_err());
    }

    #[test]
    fn every_message_in_the_table_is_known() {
        for fields in TABLE.values() {
            for field in fields.values() {
                if let Type::Message(name) = &field.of {
                    let builtin = matches!(name.as_str(), "Time" | "Quantity" | "IntOrString");
                    assert!(builtin || TABLE.contains_key(name.as_str()), "{name}");
                }
            }
        }
    }
}
