//! CSIDrivers: what they are when nothing is said, and what they may say (`pkg/apis/storage`).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::kind_rules::{items_of, spec_of, text_of, unsupported};
use crate::schema::FieldError;

const SHORTEST_TOKEN: i64 = 600;
const LONGEST_TOKEN: i64 = 1 << 32;

/// `validateCSIDriverSpec`.
pub fn driver_errors(driver: &Value) -> Vec<FieldError> {
    let spec = spec_of(driver);
    let mut errors = Vec::new();
    let requests = items_of(spec, "tokenRequests");
    let mut audiences = BTreeSet::new();
    for (index, request) in requests.iter().enumerate() {
        let at = format!("spec.tokenRequests[{index}]");
        let audience = text_of(request, "audience");
        if !audiences.insert(audience) {
            errors.push(FieldError::duplicate(format!("{at}.audience"), &audience.into()));
        }
        let Some(seconds) = request.get("expirationSeconds").and_then(Value::as_i64) else { continue };
        let field = format!("{at}.expirationSeconds");
        if seconds < SHORTEST_TOKEN {
            let why = "may not specify a duration less than 10 minutes";
            errors.push(FieldError::invalid(field.as_str(), &seconds.into(), why));
        }
        if seconds > LONGEST_TOKEN {
            let why = "may not specify a duration larger than 2^32 seconds";
            errors.push(FieldError::invalid(field, &seconds.into(), why));
        }
    }
    let known = ["Persistent", "Ephemeral"];
    let modes = items_of(spec, "volumeLifecycleModes").iter();
    for mode in modes.filter(|mode| !mode.as_str().is_some_and(|mode| known.contains(&mode))) {
        errors.push(FieldError::not_supported("spec.volumeLifecycleModes", mode, &known));
    }
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    errors.extend(unsupported(spec, "fsGroupPolicy", "spec.fsGroupPolicy", &policies));
    if let Some(inside) = spec.get("serviceAccountTokenInSecrets").filter(|v| v.is_boolean() && requests.is_empty()) {
        let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.push(FieldError::invalid("spec.serviceAccountTokenInSecrets", inside, why));
    }
    errors
}

/// Tokens end up in what drivers log, unless they come as secrets.
pub fn driver_warning(driver: &Value) -> Option<String> {
    let spec = spec_of(driver);
    let told = items_of(spec, "tokenRequests").is_empty() || spec.get("serviceAccountTokenInSecrets").is_some();
    let why = "if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";
    (!told).then(|| format!("spec.serviceAccountTokenInSecrets is unset; {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_driver_asks_for_each_audience_once() {
        let driver = json!({"spec": {"tokenRequests": [{"audience": "a"}, {"audience": "a", "expirationSeconds": 5}],
            "volumeLifecycleModes": ["Foo"], "fsGroupPolicy": "Foo"}});
        let found: Vec<String> = driver_errors(&driver).into_iter().map(|e| e.field).collect();
        let wanted = [
            "spec.tokenRequests[1].audience",
            "spec.tokenRequests[1].expirationSeconds",
            "spec.volumeLifecycleModes",
            "spec.fsGroupPolicy",
        ];
        assert_eq!(found, wanted);
        assert!(driver_warning(&driver).is_some());
        assert!(driver_warning(&json!({"spec": {}})).is_none());
    }
}
