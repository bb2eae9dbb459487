//! What the chart for the components refuses, in words: values of which each is well formed, and that would render
//! collectors that do not start, or objects that no API server takes.
//!
//! Rule: as the flags of `caldera inventory` and `caldera manifests` refuse it. What a value must look like alone is in
//! the schema.

use crate::deploy::MOST_COLLECTOR_NAME;

const REFUSALS: &str = r#"{{- range $.Values.inventory.extraArgs }}
{{- if or (hasPrefix "--probe-interval=" .) (hasPrefix "--probe-bandwidth-interval=" .) }}
{{- if not $.Values.probe.peers }}
{{- fail (printf "inventory.extraArgs: %s says how often other members are measured: name them in probe.peers" .) }}
{{- end }}
{{- end }}
{{- if hasPrefix "--probe-bytes-a-day=" . }}
{{- if not $.Values.probe.secretName }}
{{- fail (printf "inventory.extraArgs: %s bounds what collectors measure with: name a Secret in probe.secretName" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $.Values.collectors }}
{{- if gt (len .) MOST_NAME }}
{{- fail (printf "collectors: %s has more than MOST_NAME characters, too many for the labels of its collector" .) }}
{{- end }}
{{- if $.Values.probe.secretName }}
{{- if contains "." . }}
{{- fail (printf "collectors: %s has a dot, which its Service caldera-probe-MEMBER can not be named with: run its collector inside the member, by caldera manifests --member" .) }}
{{- end }}
{{- end }}
{{- end }}
"#;

pub(super) fn build_guard() -> String {
    REFUSALS.replace("MOST_NAME", &MOST_COLLECTOR_NAME.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        chart::{build_component_chart, put_over, template::try_render_template},
        manifests::parse_documents,
    };

    fn find_refusal(over: &Value) -> Option<String> {
        let mut values = parse_documents(&build_component_chart()["values.yaml"]).unwrap().remove(0);
        put_over(&mut values, over);
        match try_render_template(&build_guard(), &json!({"Values": values})) {
            Ok(text) => {
                assert_eq!(text, "", "it renders nothing");
                None
            }
            Err(refused) => Some(refused),
        }
    }

    /// Such collectors were rendered, and each refused its flags again and again.
    #[test]
    fn flags_of_a_measurement_that_nobody_makes_are_refused_in_words() {
        let of = |secret: &str, peers: Value, arg: &str| {
            let probe = json!({"secretName": secret, "peers": peers});
            find_refusal(&json!({"collectors": ["m1"], "probe": probe, "inventory": {"extraArgs": [arg]}}))
        };
        for arg in ["--probe-interval=30", "--probe-bandwidth-interval=600"] {
            for secret in ["", "s"] {
                let refused = of(secret, json!([]), arg).unwrap();
                assert!(refused.contains(arg) && refused.ends_with("name them in probe.peers"), "{refused}");
            }
            assert_eq!(of("s", json!(["m2=h:1"]), arg), None);
        }
        let budget = "--probe-bytes-a-day=0";
        assert!(of("", json!([]), budget).unwrap().ends_with("name a Secret in probe.secretName"));
        assert_eq!(of("s", json!([]), budget), None, "others may measure the way to it");
        assert_eq!(of("", json!([]), "--heartbeat=30"), None);
    }

    #[test]
    fn a_member_that_names_no_service_is_refused_where_it_needs_one() {
        let of = |name: &str, secret: &str| {
            find_refusal(&json!({"collectors": ["m1", name], "probe": {"secretName": secret, "peers": []}}))
        };
        assert!(of("eu.m2", "s").unwrap().starts_with("collectors: eu.m2 has a dot"));
        assert_eq!((of("eu.m2", ""), of("eu-m2", "s")), (None, None));
        let long = "m".repeat(MOST_COLLECTOR_NAME);
        assert_eq!(of(&long, ""), None);
        assert!(of(&(long + "m"), "").unwrap().contains("has more than 45 characters"));
    }
}
