//! `authorizer` in admission expressions: `authorizer.group('apps').resource('deployments').check('create').allowed()`
//! (`apiserver/pkg/cel/library/authz.go`).

use std::cell::RefCell;
use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};
use serde_json::Value;

use crate::auth::{self, Decision, RequestInfo, User};
use crate::server::ApiServer;

/// Who is asking, and whom.
#[derive(Clone)]
pub struct Asker {
    pub server: ApiServer,
    pub user: User,
}

thread_local! {
    /// The asker of the expression that runs on this thread.
    static ASKER: RefCell<Option<Asker>> = const { RefCell::new(None) };
}

pub fn with_asker<T>(asker: Option<&Asker>, then: impl FnOnce() -> T) -> T {
    ASKER.set(asker.cloned());
    let result = then();
    ASKER.set(None);
    result
}

/// A question in the making.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Question {
    stage: Stage,
    /// Another user than the asker.
    user: Option<User>,
    about: RequestInfo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Authorizer,
    Path,
    Group,
    Resource,
}

impl Opaque for Question {
    fn runtime_type_name(&self) -> &str {
        match self.stage {
            Stage::Authorizer => "kubernetes.authorization.Authorizer",
            Stage::Path => "kubernetes.authorization.PathCheck",
            Stage::Group => "kubernetes.authorization.GroupCheck",
            Stage::Resource => "kubernetes.authorization.ResourceCheck",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer(Decision);

impl Opaque for Answer {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.authorization.Decision"
    }
}

pub fn authorizer_value() -> CelValue {
    CelValue::Opaque(Arc::new(Question { stage: Stage::Authorizer, user: None, about: RequestInfo::default() }))
}

/// `authorizer.requestResource`: the resource that the write is about.
pub fn request_value(request: &Value) -> CelValue {
    let text = |path: &str| request.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let about = RequestInfo {
        is_resource: true,
        group: text("/requestResource/group"),
        version: text("/requestResource/version"),
        resource: text("/requestResource/resource"),
        subresource: text("/requestSubResource"),
        namespace: text("/namespace"),
        name: text("/name"),
        ..RequestInfo::default()
    };
    CelValue::Opaque(Arc::new(Question { stage: Stage::Resource, user: None, about }))
}

type Result<T> = std::result::Result<T, ExecutionError>;

fn read_question(value: &CelValue, stages: &[Stage]) -> Result<Question> {
    match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref::<Question>().filter(|q| stages.contains(&q.stage)).cloned(),
        _ => None,
    }
    .ok_or(ExecutionError::NoSuchOverload)
}

fn read_answer(value: &CelValue) -> Result<Decision> {
    match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref::<Answer>().map(|answer| answer.0.clone()),
        _ => None,
    }
    .ok_or(ExecutionError::NoSuchOverload)
}

pub fn register_functions(context: &mut Context<'_>) {
    /// A member function that takes one text and says more of the question.
    fn refine(context: &mut Context<'_>, name: &str, from: Stage, to: Stage, set: fn(&mut RequestInfo, String)) {
        context.add_function(name, move |This(this): This<CelValue>, text: Arc<String>| -> Result<CelValue> {
            let mut question = read_question(&this, &[from])?;
            question.stage = to;
            set(&mut question.about, text.as_str().to_owned());
            Ok(CelValue::Opaque(Arc::new(question)))
        });
    }
    refine(context, "path", Stage::Authorizer, Stage::Path, |about, text| about.path = text);
    refine(context, "group", Stage::Authorizer, Stage::Group, |about, text| about.group = text);
    refine(context, "resource", Stage::Group, Stage::Resource, |about, text| {
        about.is_resource = true;
        about.resource = text;
    });
    refine(context, "subresource", Stage::Resource, Stage::Resource, |about, text| about.subresource = text);
    refine(context, "namespace", Stage::Resource, Stage::Resource, |about, text| about.namespace = text);
    refine(context, "name", Stage::Resource, Stage::Resource, |about, text| about.name = text);
    context.add_function("serviceAccount", service_account);
    context.add_function("check", check_access);
    context.add_function("allowed", |This(this): This<CelValue>| -> Result<CelValue> {
        Ok(CelValue::Bool(read_answer(&this)?.allowed))
    });
    context.add_function("errored", |This(this): This<CelValue>| -> Result<CelValue> {
        Ok(CelValue::Bool(!read_answer(&this)?.problems.is_empty()))
    });
    context.add_function("error", |This(this): This<CelValue>| -> Result<CelValue> {
        Ok(CelValue::String(Arc::new(read_answer(&this)?.problems)))
    });
    context.add_function("reason", |This(this): This<CelValue>| -> Result<CelValue> {
        Ok(CelValue::String(Arc::new(read_answer(&this)?.reason)))
    });
}

fn service_account(This(this): This<CelValue>, namespace: Arc<String>, name: Arc<String>) -> Result<CelValue> {
    let mut question = read_question(&this, &[Stage::Authorizer])?;
    question.user = Some(auth::service_account(&namespace, &name));
    Ok(CelValue::Opaque(Arc::new(question)))
}

fn check_access(This(this): This<CelValue>, verb: Arc<String>) -> Result<CelValue> {
    let Question { user, mut about, .. } = read_question(&this, &[Stage::Path, Stage::Resource])?;
    about.verb = verb.as_str().to_owned();
    let asker = ASKER.with_borrow(Clone::clone);
    let asker = asker.ok_or_else(|| ExecutionError::function_error("check", "no authorizer"))?;
    let decision = auth::decide_access(&asker.server, user.as_ref().unwrap_or(&asker.user), &about);
    Ok(CelValue::Opaque(Arc::new(Answer(decision))))
}
