//! Users' own scripts: which one answers, and what of its answer counts.
//!
//! Rule: Karmada `customized/declarative/{configurable.go,configmanager,luavm/lua.go}`: of all
//! ResourceInterpreterCustomizations for a kind, by name, the first that has a script for an operation; of dependencies
//! all of them. A script outranks webhooks and what Karmada knows itself; where it fails nobody else is asked.

mod convert;
mod kube;
mod machine;

use caldera_core::quantity::Quantity;
use caldera_crds::karmada::work::{Component, ReplicaRequirements};
use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

pub use machine::check_syntax;

use super::Operation;
use crate::karmada::object::{Gvk, ObjectExt, Shared};

/// The kind that holds scripts.
#[must_use]
pub fn customization_kind() -> Gvk {
    Gvk::new("config.karmada.io/v1alpha1", "ResourceInterpreterCustomization")
}

/// The field of `spec.customizations` that an operation's script is in.
fn field_of(operation: Operation) -> &'static str {
    match operation {
        Operation::InterpretReplica => "replicaResource",
        Operation::InterpretComponent => "componentResource",
        Operation::ReviseReplica => "replicaRevision",
        Operation::InterpretStatus => "statusReflection",
        Operation::Retain => "retention",
        Operation::AggregateStatus => "statusAggregation",
        Operation::InterpretHealth => "healthInterpretation",
        Operation::InterpretDependency => "dependencyInterpretation",
    }
}

/// What a customization says for an operation, empty if nothing.
#[must_use]
pub fn read_script(customization: &Value, operation: Operation) -> &str {
    customization.text(&format!("/spec/customizations/{}/luaScript", field_of(operation)))
}

/// The scripts that answer for a kind and operation, in their order.
#[must_use]
pub fn choose_scripts(customizations: &[Shared], gvk: &Gvk, operation: Operation) -> Vec<String> {
    let mut named: Vec<(&str, &str)> = customizations
        .iter()
        .filter(|one| Gvk::new(one.text("/spec/target/apiVersion"), one.text("/spec/target/kind")) == *gvk)
        .map(|one| (one.name(), read_script(one, operation)))
        .filter(|(_, script)| !script.is_empty())
        .collect();
    named.sort_unstable();
    let most = if operation == Operation::InterpretDependency { named.len() } else { 1 };
    named.into_iter().take(most).map(|(_, script)| script.to_owned()).collect()
}

/// Why a customization is refused: another one has a script for the same kind and operation, or one can not be read
/// (`pkg/webhook/resourceinterpretercustomization`).
///
/// # Errors
/// With Karmada's words.
pub fn validate_customization(new: &Value, others: &[Shared]) -> Result<(), String> {
    let target =
        |one: &Value| (one.text("/spec/target/apiVersion").to_owned(), one.text("/spec/target/kind").to_owned());
    for other in others.iter().filter(|other| other.name() != new.name() && target(other) == target(new)) {
        for operation in Operation::ALL.into_iter().filter(|one| *one != Operation::InterpretDependency) {
            if !read_script(new, operation).is_empty() && !read_script(other, operation).is_empty() {
                return Err(format!(
                    "conflicting with InterpreterOperation({}) of existing ResourceInterpreterCustomization({})",
                    operation.name(),
                    other.name()
                ));
            }
        }
    }
    for operation in Operation::ALL {
        check_syntax(read_script(new, operation))
            .map_err(|error| format!("InterpreterOperation({}) Lua script error: {error}", operation.name()))?;
    }
    Ok(())
}

/// A script and the time at which it runs.
pub struct Script<'a> {
    /// Its text.
    pub text: &'a str,
    /// What `os.time` tells it.
    pub now: Timestamp,
}

impl Script<'_> {
    fn call<T>(
        &self,
        function: &str,
        arguments: &[Value],
        read: impl FnOnce(&[mlua::Value]) -> Result<T, String>,
    ) -> Result<T, String> {
        machine::call_function(self.text, function, arguments, self.now, read)
    }

    /// One table.
    fn call_for_table(&self, function: &str, arguments: &[Value], references: &[&Value]) -> Result<Value, String> {
        self.call(function, arguments, |results| read_first_table(results, references, "requires"))
    }

    /// An object: an empty table is an empty one.
    fn call_for_object(&self, function: &str, arguments: &[Value], references: &[&Value]) -> Result<Value, String> {
        let object = self.call_for_table(function, arguments, references)?;
        if object.text("/kind").is_empty() {
            return Err("json unmarshal obj failed: Object 'Kind' is missing in the result".to_owned());
        }
        Ok(object)
    }

    /// How many replicas, and what each needs.
    ///
    /// # Errors
    /// When the script fails or tells something else.
    pub fn read_replicas(&self, object: &Value) -> Result<(i64, Option<Value>), String> {
        self.call("GetReplicas", std::slice::from_ref(object), |results| {
            let number = match results.first() {
                Some(mlua::Value::Integer(number)) => *number,
                // Go cuts off what is behind the point.
                #[allow(clippy::cast_possible_truncation)]
                Some(mlua::Value::Number(number)) => *number as i64,
                _ => return Err("result type of replicas is not number".to_owned()),
            };
            match results.get(1) {
                None | Some(mlua::Value::Nil) => Ok((number, None)),
                needs => {
                    let needs: Vec<mlua::Value> = needs.cloned().into_iter().collect();
                    let mut needs = empty_map(read_first_table(&needs, &[], "requires")?);
                    rewrite_amounts(&mut needs)?;
                    Ok((number, Some(in_shape::<ReplicaRequirements>(needs)?)))
                }
            }
        })
    }

    /// The same by pod template.
    ///
    /// # Errors
    /// When the script fails or tells something else.
    pub fn read_components(&self, object: &Value) -> Result<Vec<Value>, String> {
        self.call("GetComponents", std::slice::from_ref(object), |results| match results.first() {
            None | Some(mlua::Value::Nil) => Ok(Vec::new()),
            _ => {
                let mut told = read_first_table(results, &[], "components")?;
                for needs in
                    told.as_array_mut().into_iter().flatten().filter_map(|one| one.get_mut("replicaRequirements"))
                {
                    rewrite_amounts(needs)?;
                }
                Ok(in_shape::<Vec<Component>>(told)?.as_array().cloned().unwrap_or_default())
            }
        })
        .map_err(|error| format!("failed to run 'GetComponents' script: {error}"))
    }

    /// The object with so many replicas.
    ///
    /// # Errors
    /// When the script fails or gives back no object.
    pub fn revise_replicas(&self, object: &Value, replicas: i64) -> Result<Value, String> {
        self.call_for_object("ReviseReplica", &[object.clone(), json!(replicas)], &[object])
    }

    /// The desired object with what the observed one keeps.
    ///
    /// # Errors
    /// When the script fails or gives back no object.
    pub fn retain_fields(&self, desired: &Value, observed: &Value) -> Result<Value, String> {
        self.call_for_object("Retain", &[desired.clone(), observed.clone()], &[desired, observed])
    }

    /// The template with the status of all members.
    ///
    /// # Errors
    /// When the script fails or gives back no object.
    pub fn aggregate_status(&self, template: &Value, items: &[Value]) -> Result<Value, String> {
        self.call_for_object("AggregateStatus", &[template.clone(), json!(items)], &[])
    }

    /// What a member object's status is, for the host.
    ///
    /// # Errors
    /// When the script fails or gives back no table.
    pub fn reflect_status(&self, observed: &Value) -> Result<Value, String> {
        let reflect = |results: &[mlua::Value]| read_first_table(results, &[], "replica");
        self.call("ReflectStatus", std::slice::from_ref(observed), reflect).map(empty_map)
    }

    /// Whether a member object is healthy.
    ///
    /// # Errors
    /// When the script fails or gives back neither yes nor no.
    pub fn is_healthy(&self, observed: &Value) -> Result<bool, String> {
        self.call("InterpretHealth", std::slice::from_ref(observed), |results| match results.first() {
            Some(mlua::Value::Boolean(healthy)) => Ok(*healthy),
            _ => Err("result type of health is not bool".to_owned()),
        })
    }

    /// References to what the object needs.
    ///
    /// # Errors
    /// When the script fails, or a reference names nothing.
    pub fn list_dependencies(&self, object: &Value) -> Result<Vec<Value>, String> {
        let told = self.call_for_table("GetDependencies", std::slice::from_ref(object), &[])?;
        let list = told.as_array().ok_or("json unmarshal obj failed: json: cannot unmarshal object into a list")?;
        for (index, one) in list.iter().enumerate() {
            let missing =
                |field: &str| format!("dependencies[{index}].{field}: Invalid value: \"\": missing required {field}");
            for field in ["apiVersion", "kind"] {
                if one.text(&format!("/{field}")).is_empty() {
                    return Err(missing(field));
                }
            }
            if one.text("/name").is_empty() && one.present("/labelSelector").is_none() {
                let what = "dependency can not leave name and labelSelector all empty";
                return Err(format!("dependencies[{index}]: Invalid value: {what}"));
            }
        }
        Ok(list.iter().map(keep_reference).collect())
    }
}

/// Dependencies of several scripts, each once and in Karmada's order.
pub fn sort_dependencies(dependencies: &mut Vec<Value>) {
    let key = |one: &Value| ["/apiVersion", "/kind", "/namespace", "/name"].map(|field| one.text(field).to_owned());
    dependencies.sort_by_key(key);
    dependencies.dedup();
}

fn keep_reference(told: &Value) -> Value {
    let mut reference = json!({});
    for field in ["apiVersion", "kind", "namespace", "name", "labelSelector"] {
        reference.put_or_remove(&[field], told.present(&format!("/{field}")).cloned());
    }
    reference
}

fn read_first_table(results: &[mlua::Value], references: &[&Value], what: &str) -> Result<Value, String> {
    match results.first() {
        Some(mlua::Value::Table(table)) => convert::read_table(table, references),
        other => {
            let got = other.map_or("nil", machine::name_type);
            Err(format!("expect the returned {what} type is table but got {got}"))
        }
    }
}

fn empty_map(value: Value) -> Value {
    if value == json!([]) { json!({}) } else { value }
}

/// Amounts as Kubernetes writes them: `1024Mi` is `1Gi`.
fn rewrite_amounts(needs: &mut Value) -> Result<(), String> {
    for amount in needs.get_mut("resourceRequest").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut)
    {
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        let parsed: Quantity = text.parse().map_err(|error| format!("json unmarshal obj failed: {error}"))?;
        *amount = json!(parsed.to_string());
    }
    Ok(())
}

/// What Karmada's type of it has, written as it writes it.
fn in_shape<T: Serialize + DeserializeOwned>(value: Value) -> Result<Value, String> {
    let typed = serde_json::from_value::<T>(value).map_err(|error| format!("json unmarshal obj failed: {error}"))?;
    serde_json::to_value(typed).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn customization(name: &str, field: &str, script: &str) -> Shared {
        Arc::new(json!({"metadata": {"name": name}, "spec": {
            "target": {"apiVersion": "example.com/v1", "kind": "Widget"},
            "customizations": {field: {"luaScript": script}},
        }}))
    }

    fn script(text: &str) -> Script<'_> {
        Script { text, now: Timestamp::UNIX_EPOCH }
    }

    fn widget() -> Value {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "n"},
            "spec": {"replicas": 3, "volumes": [], "selector": {}}, "status": {"ready": 2}})
    }

    #[test]
    fn the_first_script_by_name_answers_and_all_of_them_name_dependencies() {
        let all = [customization("b", "retention", "B"), customization("a", "retention", "A")];
        let gvk = Gvk::new("example.com/v1", "Widget");
        assert_eq!(choose_scripts(&all, &gvk, Operation::Retain), ["A"]);
        assert!(choose_scripts(&all, &gvk, Operation::InterpretHealth).is_empty());
        assert!(choose_scripts(&all, &Gvk::new("example.com/v2", "Widget"), Operation::Retain).is_empty());
        let both =
            [customization("b", "dependencyInterpretation", "B"), customization("a", "dependencyInterpretation", "A")];
        assert_eq!(choose_scripts(&both, &gvk, Operation::InterpretDependency), ["A", "B"]);
    }

    #[test]
    fn a_second_script_for_an_operation_and_one_that_can_not_be_read_are_refused() {
        let other = customization("a", "retention", "function Retain() end");
        let error = validate_customization(&customization("b", "retention", "x = 1"), std::slice::from_ref(&other))
            .unwrap_err();
        assert_eq!(
            error,
            "conflicting with InterpreterOperation(Retain) of existing ResourceInterpreterCustomization(a)"
        );
        assert_eq!(validate_customization(&other, std::slice::from_ref(&other)), Ok(()));
        assert_eq!(
            validate_customization(&customization("b", "statusReflection", "x = 1"), std::slice::from_ref(&other)),
            Ok(())
        );
        let error = validate_customization(&customization("b", "statusReflection", "function"), &[other]).unwrap_err();
        assert!(error.starts_with("InterpreterOperation(InterpretStatus) Lua script error: <string>:1:"), "{error}");
    }

    #[test]
    fn replicas_come_with_requirements_or_without() {
        let told = script(
            "function GetReplicas(o) return o.spec.replicas, {resourceRequest = {memory = '1024Mi'}, x = 1} end",
        )
        .read_replicas(&widget());
        assert_eq!(told, Ok((3, Some(json!({"resourceRequest": {"memory": "1Gi"}})))));
        assert_eq!(script("function GetReplicas(o) return 2.9 end").read_replicas(&widget()), Ok((2, None)));
        assert!(script("function GetReplicas(o) return '3' end").read_replicas(&widget()).is_err());
        let error = script("function GetReplicas(o) return 1, 'x' end").read_replicas(&widget()).unwrap_err();
        assert_eq!(error, "expect the returned requires type is table but got string");
    }

    #[test]
    fn components_are_a_list_or_nothing() {
        let list = "function GetComponents(o) return {{name = 'a', replicas = o.spec.replicas}} end";
        assert_eq!(script(list).read_components(&widget()), Ok(vec![json!({"name": "a", "replicas": 3})]));
        assert_eq!(script("function GetComponents(o) end").read_components(&widget()), Ok(Vec::new()));
        assert!(script("function GetComponents(o) return 1 end").read_components(&widget()).is_err());
    }

    #[test]
    fn a_revised_or_retained_object_keeps_what_was_empty() {
        let revised = script("function ReviseReplica(o, n) o.spec.replicas = n; o.spec.x = {}; return o end")
            .revise_replicas(&widget(), 5)
            .unwrap();
        assert_eq!(revised["spec"], json!({"replicas": 5, "volumes": [], "selector": {}}));
        let retained = script("function Retain(d, o) d.spec = o.spec; return d end").retain_fields(&revised, &widget());
        assert_eq!(retained.unwrap()["spec"]["replicas"], 3);
        assert!(script("function Retain(d, o) return {} end").retain_fields(&revised, &widget()).is_err());
    }

    #[test]
    fn a_status_is_a_table_and_an_empty_one_an_empty_map() {
        assert_eq!(
            script("function ReflectStatus(o) return o.status end").reflect_status(&widget()),
            Ok(json!({"ready": 2}))
        );
        assert_eq!(script("function ReflectStatus(o) return {} end").reflect_status(&widget()), Ok(json!({})));
        let error = script("function ReflectStatus(o) end").reflect_status(&widget()).unwrap_err();
        assert_eq!(error, "expect the returned replica type is table but got nil");
        let sum = "function AggregateStatus(o, items) o.status = {n = 0}; \
                   for i = 1, #items do o.status.n = o.status.n + items[i].status.ready end; return o end";
        let items = [json!({"clusterName": "m1", "status": {"ready": 1}}), json!({"status": {"ready": 2}})];
        let aggregated = script(sum).aggregate_status(&widget(), &items).unwrap();
        assert_eq!((&aggregated["status"], aggregated["spec"].get("volumes")), (&json!({"n": 3}), None));
        assert_eq!(script(sum).aggregate_status(&widget(), &[]).unwrap()["status"], json!({"n": 0}));
    }

    #[test]
    fn health_is_yes_or_no() {
        let text = "function InterpretHealth(o) return o.status.ready == o.spec.replicas end";
        assert_eq!(script(text).is_healthy(&widget()), Ok(false));
        assert!(script("function InterpretHealth(o) return 1 end").is_healthy(&widget()).is_err());
    }

    #[test]
    fn dependencies_name_something() {
        let text = "function GetDependencies(o) \
                    return {{apiVersion = 'v1', kind = 'Secret', namespace = 'n', name = 's', x = 1}} end";
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "namespace": "n", "name": "s"});
        assert_eq!(script(text).list_dependencies(&widget()), Ok(vec![secret.clone()]));
        assert_eq!(script("function GetDependencies(o) return {} end").list_dependencies(&widget()), Ok(Vec::new()));
        let error = script("function GetDependencies(o) return {{apiVersion = 'v1', kind = 'Secret'}} end")
            .list_dependencies(&widget())
            .unwrap_err();
        assert!(error.contains("can not leave name and labelSelector all empty"), "{error}");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "c"});
        let mut both = vec![secret.clone(), map.clone(), secret.clone()];
        sort_dependencies(&mut both);
        assert_eq!(both, [map, secret]);
    }
}
