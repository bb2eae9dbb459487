//! The library `kube` that scripts may require.
//!
//! Rule: Karmada `customized/declarative/luavm/kube.go`.

use caldera_core::quantity::Quantity;
use mlua::{Lua, MultiValue, Table};
use serde_json::{Value, json};

use super::{
    convert::{read_table, write_value},
    machine::name_type,
};
use crate::karmada::interpreter::{dependencies, workload};

/// The library's table.
///
/// # Errors
/// When the memory does not suffice.
pub fn build_library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("resourceAdd", lua.create_function(|_, amounts: MultiValue| add_amounts(&amounts))?)?;
    library.raw_set(
        "getResourceQuantity",
        lua.create_function(|_, amounts: MultiValue| {
            only_argument(&amounts, "getResourceQuantity").and_then(read_number)
        })?,
    )?;
    library.raw_set(
        "accuratePodRequirements",
        lua.create_function(|lua, templates: MultiValue| {
            let template = read_template(only_argument(&templates, "getPodRequirements")?)?;
            write_value(lua, &workload::replica_requirements(&template["spec"]).unwrap_or(Value::Null))
        })?,
    )?;
    library.raw_set(
        "getPodDependencies",
        lua.create_function(|lua, (template, namespace): (mlua::Value, Option<String>)| {
            let template = read_template(&template)?;
            let namespace = namespace.unwrap_or_else(|| "default".to_owned());
            let needs = dependencies::list_pod_needs(&template["spec"], &namespace);
            // Go's empty slice is a nil one here.
            write_value(lua, &if needs.is_empty() { Value::Null } else { json!(needs) })
        })?,
    )?;
    Ok(library)
}

fn only_argument<'a>(arguments: &'a MultiValue, function: &str) -> mlua::Result<&'a mlua::Value> {
    match arguments.len() {
        1 => arguments.front().ok_or_else(|| mlua::Error::runtime("no argument")),
        _ => Err(mlua::Error::runtime(format!("{function} only accepts one argument"))),
    }
}

fn read_template(template: &mlua::Value) -> mlua::Result<Value> {
    let mlua::Value::Table(table) = template else {
        let got = name_type(template);
        return Err(mlua::Error::runtime(format!("bad argument #1 (table expected, got {got})")));
    };
    read_table(table, &[])
        .map_err(|error| mlua::Error::runtime(format!("fail to convert lua value to PodTemplateSpec: {error}")))
}

fn read_amount(amount: &mlua::Value) -> mlua::Result<Quantity> {
    match amount {
        mlua::Value::Nil => Ok(Quantity::ZERO),
        mlua::Value::String(text) => text.to_string_lossy().parse().map_err(mlua::Error::external),
        other => Err(mlua::Error::runtime(format!("string expected, got {}", name_type(other)))),
    }
}

fn add_amounts(amounts: &MultiValue) -> mlua::Result<String> {
    let mut sum = Quantity::ZERO;
    for amount in amounts.iter().map(read_amount) {
        let amount = amount?;
        // Nothing is written as what comes to it.
        sum = if sum.is_zero() { amount } else { sum.saturating_add(amount) };
    }
    Ok(sum.to_string())
}

fn read_number(amount: &mlua::Value) -> mlua::Result<f64> {
    let amount = read_amount(amount)?;
    if amount.is_negative() {
        return Err(mlua::Error::runtime(format!(
            "int approximation unexpectedly returned a negative value: {amount}"
        )));
    }
    // Karmada's own number is approximate too.
    #[allow(clippy::cast_precision_loss)]
    Ok(amount.as_nano() as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::karmada::interpreter::lua::machine::call_function;

    fn told(expression: &str) -> Result<Value, String> {
        let script = format!("local kube = require('kube')\nfunction F() return {{{expression}}} end");
        call_function(&script, "F", &[], jiff::Timestamp::UNIX_EPOCH, |results| match results {
            [mlua::Value::Table(table)] => read_table(table, &[]),
            other => Err(format!("{other:?}")),
        })
    }

    #[test]
    fn amounts_are_added_and_written_as_the_first_that_is_something() {
        assert_eq!(
            told("kube.resourceAdd('1', '500m', nil), kube.resourceAdd('0', '512Mi', '512Mi'), kube.resourceAdd()"),
            Ok(json!(["1500m", "1Gi", "0"]))
        );
        assert!(told("kube.resourceAdd('many')").is_err());
        assert_eq!(told("kube.getResourceQuantity('1500m'), kube.getResourceQuantity('1Ki')"), Ok(json!([1.5, 1024])));
        assert!(told("kube.getResourceQuantity('-1')").is_err());
    }

    #[test]
    fn a_pod_template_tells_its_requirements_and_its_needs() {
        let pod = "{spec = {nodeSelector = {}, serviceAccountName = 'sa', containers = {{name = 'c', \
                   resources = {requests = {cpu = '2', memory = '1024Mi'}}, \
                   envFrom = {{configMapRef = {name = 'cm'}}}}}}}";
        assert_eq!(
            told(&format!("kube.accuratePodRequirements({pod})")),
            Ok(json!([{"resourceRequest": {"cpu": "2", "memory": "1Gi"}}]))
        );
        assert_eq!(told("a = kube.accuratePodRequirements({spec = {}})"), Ok(json!([])));
        assert_eq!(
            told(&format!("kube.getPodDependencies({pod}, 'n')")),
            Ok(json!([[
                {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "cm"},
                {"apiVersion": "v1", "kind": "ServiceAccount", "namespace": "n", "name": "sa"}
            ]]))
        );
    }
}
