//! The customization by which Karmada answers itself what it asks about copies in members.
//!
//! Rule (Karmada `pkg/resourceinterpreter/interpreter.go`): each operation goes to the first of customizations,
//! webhooks and Karmada's own that has it. The karmada-agent of a Pull member asks three (`pkg/util/objectwatcher`,
//! `pkg/controllers/status/work_status_controller.go`): Retain before each update, InterpretStatus and InterpretHealth
//! after each change. These are answered here, so that an agent needs no way to the webhook. All other operations are
//! asked on the host alone and stay with it.
//!
//! The scripts say what the webhook says, but for what Lua can not say: `null` and, in a status, an empty list or map
//! are left out (`luavm/lua_convert.go`). Nor has Lua integers: Karmada hands them over as floats of 64 bits, before
//! any script sees them, so those above 2^53 come out changed. The member then refuses each update of such a copy, as
//! one with the greatest `tolerationSeconds`, or Volcano does, since its spec changed.

use serde_json::{Value, json};

/// Its name.
pub const MEMBER_CUSTOMIZATION: &str = "volcano-jobs.caldera.dev";

const RETENTION: &str = include_str!("../decide/interpreter/in_members/retention.lua");
const STATUS_REFLECTION: &str = include_str!("../decide/interpreter/in_members/status_reflection.lua");
const HEALTH_INTERPRETATION: &str = include_str!("../decide/interpreter/in_members/health_interpretation.lua");

/// The ResourceInterpreterCustomization of Volcano Jobs, for the host. Agents read it there.
#[must_use]
pub fn build_member_customization() -> Value {
    let script = |text: &str| json!({"luaScript": text});
    json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
        "metadata": {"name": MEMBER_CUSTOMIZATION},
        "spec": {
            "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"},
            "customizations": {
                "retention": script(RETENTION),
                "statusReflection": script(STATUS_REFLECTION),
                "healthInterpretation": script(HEALTH_INTERPRETATION),
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_on_the_host_alone_stays_with_the_webhook() {
        let customization = build_member_customization();
        let answered = customization["spec"]["customizations"].as_object().unwrap();
        let answered: Vec<&str> = answered.keys().map(String::as_str).collect();
        assert_eq!(answered, ["healthInterpretation", "retention", "statusReflection"]);
    }

    /// What a YAML file and a chart carry unchanged: Helm obeys braces, and YAML has no other white space in a block.
    #[test]
    fn scripts_are_short_and_plain() {
        for text in [RETENTION, STATUS_REFLECTION, HEALTH_INTERPRETATION] {
            assert!(text.lines().count() <= 60 && text.lines().all(|line| line.len() <= 120));
            assert!(text.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)));
            assert!(text.starts_with("-- ") && text.ends_with("end\n") && !text.contains("{{"));
        }
    }
}
