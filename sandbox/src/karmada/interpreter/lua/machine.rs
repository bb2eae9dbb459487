//! A Lua 5.1 machine for one script: no files, no processes, a bounded number of steps and a bounded memory.
//!
//! Rule: Karmada `customized/declarative/luavm/lua.go`: the libraries `table`, `string`, `math`, `os.time`, `os.date`
//! and `kube`; functions that could break out raise an error. Karmada stops a script after a second; here it is stopped
//! after a number of instructions, so that what it says depends on no machine's speed. Two things differ: texts of
//! errors are those of Lua 5.1 rather than gopher-lua's, and one step inside `string.find` is not interrupted.

use std::{cell::Cell, rc::Rc};

use jiff::Timestamp;
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, VmState};
use serde_json::Value;

use super::{convert, kube};

/// A second of gopher-lua, roughly.
const STEPS: u32 = 20_000_000;
const STEPS_AT_ONCE: u32 = 10_000;
const MEMORY: usize = 64 << 20;

const FORBIDDEN: [&str; 14] = [
    "collectgarbage",
    "dofile",
    "getfenv",
    "getmetatable",
    "load",
    "loadfile",
    "loadstring",
    "rawequal",
    "rawget",
    "rawset",
    "setfenv",
    "setmetatable",
    "module",
    "newproxy",
];

/// Runs a script and then its function, and gives back as many results.
///
/// # Errors
/// With what the script says is wrong, and where.
pub fn call_function<T>(
    script: &str,
    function: &str,
    arguments: &[Value],
    now: Timestamp,
    read: impl FnOnce(&[mlua::Value]) -> Result<T, String>,
) -> Result<T, String> {
    let lua = build_machine(now).map_err(|error| shorten(&error))?;
    load_script(&lua, script).and_then(|script| script.call::<()>(())).map_err(|error| shorten(&error))?;
    let found: mlua::Value = lua.globals().raw_get(function).map_err(|error| shorten(&error))?;
    let called = match found {
        mlua::Value::Function(called) => called,
        mlua::Value::Nil => return Err(format!("not found function {function}")),
        other => return Err(format!("{function} is not a function: {}", name_type(&other))),
    };
    let mut given = MultiValue::new();
    for argument in arguments {
        given.push_back(convert::write_value(&lua, argument).map_err(|error| shorten(&error))?);
    }
    let results: MultiValue = called.call(given).map_err(|error| shorten(&error))?;
    let results: Vec<mlua::Value> = results.into_iter().collect();
    read(&results)
}

/// Lua 5.1 has one sort of numbers.
pub fn name_type(value: &mlua::Value) -> &'static str {
    if value.is_integer() { "number" } else { value.type_name() }
}

/// Whether a script can be read at all.
///
/// # Errors
/// With the place and the reason.
pub fn check_syntax(script: &str) -> Result<(), String> {
    load_script(&Lua::new(), script).map(drop).map_err(|error| shorten(&error))
}

fn load_script(lua: &Lua, script: &str) -> mlua::Result<Function> {
    // Text only: compiled code is never checked by Lua.
    lua.load(script).set_name("=<string>").set_mode(mlua::chunk::ChunkMode::Text).into_function()
}

fn build_machine(now: Timestamp) -> mlua::Result<Lua> {
    let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
    lua.set_memory_limit(MEMORY)?;
    let globals = lua.globals();
    for name in FORBIDDEN {
        let refuse = move |_: &Lua, (): ()| -> mlua::Result<()> {
            Err(mlua::Error::runtime(format!(
                "call function {name} is not supported in karmada customized resourceinterpreter."
            )))
        };
        globals.raw_set(name, lua.create_function(refuse)?)?;
    }
    // A coroutine would have steps of its own.
    for name in ["coroutine", "xpcall", "print"] {
        globals.raw_set(name, mlua::Value::Nil)?;
    }
    let library = kube::build_library(&lua)?;
    let require = move |_: &Lua, name: String| match name.as_str() {
        "kube" => Ok(library.clone()),
        _ => Err(mlua::Error::runtime(format!("module {name} not found"))),
    };
    globals.raw_set("require", lua.create_function(require)?)?;
    globals.raw_set("os", build_clock(&lua, now)?)?;
    let left = Rc::new(Cell::new(STEPS));
    globals.raw_set("pcall", build_guard(&lua, left.clone())?)?;
    lua.set_hook(HookTriggers::new().every_nth_instruction(STEPS_AT_ONCE), move |_, _| {
        left.set(left.get().saturating_sub(STEPS_AT_ONCE));
        if left.get() == 0 { Err(mlua::Error::runtime("context deadline exceeded")) } else { Ok(VmState::Continue) }
    })?;
    Ok(lua)
}

/// `pcall`, through which the end of all steps is not caught.
fn build_guard(lua: &Lua, left: Rc<Cell<u32>>) -> mlua::Result<Function> {
    lua.create_function(move |lua, (called, given): (Function, MultiValue)| match called.call::<MultiValue>(given) {
        Ok(mut results) => {
            results.push_front(mlua::Value::Boolean(true));
            Ok(results)
        }
        Err(error) if left.get() == 0 => Err(error),
        Err(error) => {
            let message = mlua::Value::String(lua.create_string(shorten(&error))?);
            Ok(MultiValue::from_iter([mlua::Value::Boolean(false), message]))
        }
    })
}

/// `os`: the time, in UTC.
fn build_clock(lua: &Lua, now: Timestamp) -> mlua::Result<Table> {
    let clock = lua.create_table()?;
    let time = move |_: &Lua, parts: Option<Table>| {
        let Some(parts) = parts else { return Ok(now.as_second()) };
        let part =
            |name: &str, otherwise: i16| parts.raw_get::<Option<i16>>(name).map(|part| part.unwrap_or(otherwise));
        let small = |name: &str, otherwise: i16| part(name, otherwise).map(|part| i8::try_from(part).unwrap_or(-1));
        let (year, month, day) = (part("year", -1)?, small("month", -1)?, small("day", -1)?);
        let (hour, minute, second) = (small("hour", 12)?, small("min", 0)?, small("sec", 0)?);
        jiff::civil::DateTime::new(year, month, day, hour, minute, second, 0)
            .and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC))
            .map(|time| time.timestamp().as_second())
            .map_err(mlua::Error::external)
    };
    clock.raw_set("time", lua.create_function(time)?)?;
    let date = move |_: &Lua, (format, at): (Option<String>, Option<i64>)| {
        let format = format.unwrap_or_else(|| "%c".to_owned());
        let at = at.and_then(|at| Timestamp::from_second(at).ok()).unwrap_or(now);
        let at = at.to_zoned(jiff::tz::TimeZone::UTC);
        jiff::fmt::strtime::format(format.trim_start_matches('!'), &at).map_err(mlua::Error::external)
    };
    clock.raw_set("date", lua.create_function(date)?)?;
    Ok(clock)
}

/// What is wrong, without the stack.
fn shorten(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::RuntimeError(text) | mlua::Error::SyntaxError { message: text, .. } => text.clone(),
        mlua::Error::CallbackError { cause, .. } => return shorten(cause),
        other => other.to_string(),
    };
    text.split("\nstack traceback:").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn called(script: &str) -> Result<Value, String> {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        call_function(script, "F", &[json!({"a": [1, 2]})], now, |results| match results {
            [mlua::Value::Table(table)] => convert::read_table(table, &[]),
            [mlua::Value::String(text)] => Ok(json!(text.to_string_lossy())),
            other => Err(format!("{other:?}")),
        })
    }

    #[test]
    fn a_script_that_loops_is_stopped_even_where_it_catches_errors() {
        assert_eq!(called("function F() while true do end end"), Err("context deadline exceeded".to_owned()));
        let error = called("function F() while true do pcall(function() while true do end end) end end").unwrap_err();
        assert!(error.contains("context deadline exceeded"), "{error}");
        assert!(called("while true do end").is_err());
    }

    #[test]
    fn a_script_that_grows_is_stopped() {
        let error = called("function F() return {string.rep('x', 100000000)} end").unwrap_err();
        assert!(error.contains("memory"), "{error}");
        let error = called("function F() local s = 'x' while true do s = s .. s end end").unwrap_err();
        assert!(error.contains("memory"), "{error}");
    }

    #[test]
    fn a_script_reaches_no_file_no_process_and_no_other_code() {
        for name in ["io", "debug", "package", "coroutine", "os.execute", "os.getenv", "os.exit"] {
            assert_eq!(called(&format!("function F() return {{tostring({name})}} end")), Ok(json!(["nil"])), "{name}");
        }
        for name in FORBIDDEN {
            let error = called(&format!("function F() {name}() end")).unwrap_err();
            assert!(error.contains("is not supported"), "{error}");
        }
        assert!(called("local x = require('io')").unwrap_err().contains("module io not found"));
        assert!(called("\u{1b}LuaQ").is_err());
    }

    #[test]
    fn errors_name_their_line_and_what_is_missing() {
        assert_eq!(called("function G() end"), Err("not found function F".to_owned()));
        assert_eq!(called("F = 5"), Err("F is not a function: number".to_owned()));
        let error = called("function F(o)\n  return o.b.c\nend").unwrap_err();
        assert!(error.starts_with("<string>:2:"), "{error}");
        assert!(check_syntax("function F(").unwrap_err().starts_with("<string>:1:"));
    }

    #[test]
    fn the_time_is_the_hosts() {
        assert_eq!(called("function F() return os.date('!%Y-%m-%dT%H:%M:%SZ') end"), Ok(json!("2026-01-02T03:04:05Z")));
        assert_eq!(
            called("function F() return {os.time(), os.time({year=2026, month=1, day=2, hour=3})} end"),
            Ok(json!([1_767_323_045, 1_767_322_800]))
        );
    }
}
