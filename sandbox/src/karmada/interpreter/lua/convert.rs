//! How objects become Lua tables, and tables objects again.
//!
//! Rule: Karmada `customized/declarative/luavm/lua_convert.go` and layeh.com/gopher-json. A table knows not whether it
//! is an empty list or an empty map: an empty one stays only where an object that went in had one at the same place,
//! list positions not counted. A table that is there twice is an error, as one that holds itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::c_void,
};

use mlua::{Lua, Table};
use serde_json::{Map, Number, Value, json};

/// A JSON value as Lua has it: all numbers are floats, and what is null is not there.
///
/// # Errors
/// When the memory does not suffice.
pub fn write_value(lua: &Lua, value: &Value) -> mlua::Result<mlua::Value> {
    Ok(match value {
        Value::Null => mlua::Value::Nil,
        Value::Bool(flag) => mlua::Value::Boolean(*flag),
        Value::Number(number) => mlua::Value::Number(number.as_f64().unwrap_or_default()),
        Value::String(text) => mlua::Value::String(lua.create_string(text)?),
        Value::Array(list) => {
            let table = lua.create_table()?;
            for one in list.iter().filter(|one| !one.is_null()) {
                table.raw_push(write_value(lua, one)?)?;
            }
            mlua::Value::Table(table)
        }
        Value::Object(fields) => {
            let table = lua.create_table()?;
            for (key, one) in fields {
                table.raw_set(key.as_str(), write_value(lua, one)?)?;
            }
            mlua::Value::Table(table)
        }
    })
}

/// A table as the JSON that Karmada reads from it; `references` are the objects that went in.
///
/// # Errors
/// With the words of gopher-json.
pub fn read_table(table: &Table, references: &[&Value]) -> Result<Value, String> {
    let failed = |what: &str| format!("encode lua result to json failed: json: error calling MarshalJSON: {what}");
    let mut read = read_nested(table, &mut BTreeSet::new(), 0).map_err(failed)?;
    if read == json!([]) {
        return Ok(read);
    }
    let mut empty = Empty::default();
    for reference in references {
        empty.find(reference, &mut Vec::new());
    }
    empty.restore(&mut read, &mut Vec::new());
    Ok(read)
}

/// Deeper than any object that an API server takes.
const DEEPEST: usize = 200;

fn read_nested(table: &Table, seen: &mut BTreeSet<*const c_void>, depth: usize) -> Result<Value, &'static str> {
    if depth > DEEPEST || !seen.insert(table.to_pointer()) {
        return Err("cannot encode recursively nested tables to JSON");
    }
    let mut list: BTreeMap<i64, Value> = BTreeMap::new();
    let mut fields = Map::new();
    for pair in table.pairs::<mlua::Value, mlua::Value>() {
        let (key, value) = pair.map_err(|_| "cannot encode mixed or invalid key types")?;
        let value = match &value {
            mlua::Value::Table(inner) => read_nested(inner, seen, depth + 1)?,
            plain => read_plain(plain)?,
        };
        match key {
            mlua::Value::Integer(index) => drop(list.insert(index, value)),
            mlua::Value::Number(_) => return Err("cannot encode sparse array"),
            mlua::Value::String(key) => drop(fields.insert(key.to_string_lossy(), value)),
            _ => return Err("cannot encode mixed or invalid key types"),
        }
    }
    match (list.is_empty(), fields.is_empty()) {
        (false, false) => Err("cannot encode mixed or invalid key types"),
        (true, false) => Ok(Value::Object(fields)),
        (_, true) => {
            if list.keys().zip(1..).any(|(index, expected)| *index != expected) {
                return Err("cannot encode sparse array");
            }
            Ok(list.into_values().collect())
        }
    }
}

fn read_plain(value: &mlua::Value) -> Result<Value, &'static str> {
    match value {
        mlua::Value::Boolean(flag) => Ok(json!(flag)),
        mlua::Value::Integer(number) => Ok(json!(number)),
        mlua::Value::Number(number) => {
            Number::from_f64(*number).map(Value::Number).ok_or("json: unsupported value: NaN or infinite")
        }
        mlua::Value::String(text) => Ok(json!(text.to_string_lossy())),
        mlua::Value::Function(_) => Err("cannot encode function to JSON"),
        _ => Err("cannot encode userdata to JSON"),
    }
}

/// Where objects have empty lists and empty maps.
#[derive(Default)]
struct Empty {
    lists: BTreeSet<Vec<String>>,
    maps: BTreeSet<Vec<String>>,
}

impl Empty {
    fn find(&mut self, value: &Value, at: &mut Vec<String>) {
        match value {
            Value::Array(list) if list.is_empty() => drop(self.lists.insert(at.clone())),
            Value::Object(fields) if fields.is_empty() => drop(self.maps.insert(at.clone())),
            Value::Array(list) => list.iter().for_each(|one| self.find(one, at)),
            Value::Object(fields) => {
                for (key, one) in fields {
                    at.push(key.clone());
                    self.find(one, at);
                    at.pop();
                }
            }
            _ => {}
        }
    }

    fn restore(&self, value: &mut Value, at: &mut Vec<String>) {
        match value {
            Value::Array(list) => {
                list.retain_mut(|one| self.keep(one, at));
            }
            Value::Object(fields) => {
                fields.retain(|key, one| {
                    at.push(key.clone());
                    let kept = self.keep(one, at);
                    at.pop();
                    kept
                });
            }
            _ => {}
        }
    }

    fn keep(&self, one: &mut Value, at: &mut Vec<String>) -> bool {
        if *one != json!([]) {
            self.restore(one, at);
            return true;
        }
        if self.maps.contains(at) {
            *one = json!({});
            return true;
        }
        self.lists.contains(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluated(text: &str, references: &[&Value]) -> Result<Value, String> {
        let lua = Lua::new();
        read_table(&lua.load(text).eval::<Table>().unwrap(), references)
    }

    #[test]
    fn an_empty_table_is_what_it_was_when_it_went_in_or_nothing() {
        let went_in = json!({"list": [], "map": {}, "items": [{"map": {}}]});
        let text = "return {list = {}, map = {}, new = {}, items = {{map = {}, new = {}, a = 1}, {map = {}}}}";
        assert_eq!(
            evaluated(text, &[&went_in]),
            Ok(json!({"list": [], "map": {}, "items": [{"map": {}, "a": 1}, {"map": {}}]}))
        );
        assert_eq!(evaluated("return {}", &[]), Ok(json!([])));
    }

    #[test]
    fn a_table_that_is_there_twice_is_refused() {
        let error = evaluated("local a = {1}; return {x = a, y = a}", &[]).unwrap_err();
        assert!(error.ends_with("cannot encode recursively nested tables to JSON"), "{error}");
        assert!(evaluated("local a = {}; a.a = a; return a", &[]).is_err());
    }

    #[test]
    fn a_list_has_no_holes_and_no_names() {
        assert!(evaluated("return {[2] = 1}", &[]).unwrap_err().ends_with("sparse array"));
        assert!(evaluated("return {1, a = 2}", &[]).unwrap_err().ends_with("mixed or invalid key types"));
        assert_eq!(evaluated("return {1, 2.5, 'x', true}", &[]), Ok(json!([1, 2.5, "x", true])));
    }

    #[test]
    fn what_goes_in_comes_out() {
        let value = json!({"a": [1, -2, "x", {"b": true}], "c": 1.5});
        let lua = Lua::new();
        let mlua::Value::Table(table) = write_value(&lua, &value).unwrap() else { panic!("no table") };
        assert_eq!(read_table(&table, &[]), Ok(value));
    }
}
