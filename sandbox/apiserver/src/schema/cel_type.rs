//! The types of CEL expressions as far as they are known, and the functions of the API server's dialect
//! (`apiserver/pkg/cel/environment/base.go` and the libraries it names; `cel-go/common/stdlib`).

use kube_cel::cel::common::ast::operators;

use super::formats::Format;
use super::node::{Additional, Kind, Node};

/// The static type of an expression, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub enum Type<'a> {
    Dyn,
    Bool,
    Int,
    Double,
    Text,
    Null,
    /// A type that is known by name only: a time, a span, bytes.
    Named(&'static str),
    /// What an expression has that was complained about: it fits everywhere.
    Error,
    /// A value of this schema, which may be missing: `oldSelf` under `optionalOldSelf`.
    Optional(&'a Node, bool),
    List(Option<&'a Node>),
    /// A list that is written out, of values of this type.
    Scalars(&'static str),
    Map(Option<&'a Node>),
    /// An object with declared fields; whether it is a resource, whose metadata has only names.
    Object(&'a Node, bool),
    /// The metadata of a resource.
    Metadata,
}

/// As far as it is known: `dyn` where it is not.
struct Element {
    is_list: bool,
    name: &'static str,
}

impl<'a> Type<'a> {
    pub fn of(node: &'a Node, resource: bool) -> Self {
        if node.int_or_string {
            return Self::Dyn;
        }
        match node.types.as_slice() {
            [Kind::Boolean] => Self::Bool,
            [Kind::Integer] => Self::Int,
            [Kind::Number] => Self::Double,
            [Kind::String] => match node.format {
                Some(Format::Text("date" | "date-time" | "datetime")) => Self::Named("timestamp"),
                Some(Format::Text("duration")) => Self::Named("duration"),
                Some(Format::Text("byte")) => Self::Named("bytes"),
                _ => Self::Text,
            },
            [Kind::Array] => Self::List(node.items.as_ref().map(|link| link.node())),
            [Kind::Object] => match &node.additional {
                Additional::Schema(link) => Self::Map(Some(link.node())),
                _ => Self::Object(node, resource || node.embedded),
            },
            _ => Self::Dyn,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Dyn => "dyn",
            Self::Named(name) => name,
            Self::Error => "!error!",
            Self::Optional(..) => "optional_type(dyn)",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Double => "double",
            Self::Text => "string",
            Self::List(_) | Self::Scalars(_) => "list(dyn)",
            Self::Map(_) => "map(string, dyn)",
            Self::Object(..) | Self::Metadata => "object",
        }
    }

    /// The type as an error names it.
    pub fn shown(self) -> String {
        let inner = |node: Option<&'a Node>| node.map_or("dyn".to_owned(), |node| Type::of(node, false).shown());
        match self {
            Self::Optional(node, resource) => format!("optional_type({})", Type::of(node, resource).shown()),
            Self::List(node) => format!("list({})", inner(node)),
            Self::Scalars(element) => format!("list({element})"),
            Self::Map(node) => format!("map(string, {})", inner(node)),
            other => other.name().to_owned(),
        }
    }

    /// What is in a list, or among the values of a map.
    fn element(self) -> Option<Element> {
        let name = |node: Option<&'a Node>| {
            let inner = node.map_or(Self::Dyn, |node| Type::of(node, node.embedded));
            if inner.known_scalar() { inner.name() } else { "dyn" }
        };
        match self {
            Self::List(node) => Some(Element { is_list: true, name: name(node) }),
            Self::Scalars(name) => Some(Element { is_list: true, name }),
            Self::Map(node) => Some(Element { is_list: false, name: name(node) }),
            _ => None,
        }
    }

    fn is_compound(self) -> bool {
        self.element().is_some() || matches!(self, Self::Object(..) | Self::Metadata | Self::Null)
    }

    pub fn known_scalar(self) -> bool {
        matches!(self, Self::Bool | Self::Int | Self::Double | Self::Text)
    }
}

/// Functions without a value before them.
pub const GLOBAL: &str = "bool bytes cidr double duration dyn int isCIDR isIP isQuantity isSemver isURL quantity semver \
    string timestamp type uint url";

/// Functions that come in both forms.
pub const EITHER: &str = "ip matches size";

/// Functions of the value before them.
pub const MEMBERS: &str = "add allowed asApproximateFloat asInteger charAt check compareTo contains containsCIDR \
    containsIP distinct endsWith error errored family fieldSelector find findAll first flatten format getDate \
    getDayOfMonth getDayOfWeek getDayOfYear getEscapedPath getFullYear getHost getHostname getHours getMilliseconds \
    getMinutes getMonth getPort getQuery getScheme getSeconds group hasValue indexOf isGlobalUnicast isGreaterThan \
    isInteger isLessThan isLinkLocalMulticast isLinkLocalUnicast isLoopback isSorted isUnspecified join labelSelector \
    last lastIndexOf lowerAscii major masked max min minor name namespace optFlatMap optMap or orValue patch path \
    prefixLength reason replace resource reverse serviceAccount sign slice sort sortBy split startsWith sub \
    subresource substring sum trim unwrapOpt upperAscii validate value";

/// Functions whose names have a dot (`environment/base.go` and the libraries it names).
pub const DOTTED: &str = "format.byte format.date format.datetime format.dns1035Label format.dns1035LabelPrefix \
    format.dns1123Label format.dns1123LabelPrefix format.dns1123Subdomain format.dns1123SubdomainPrefix \
    format.labelValue format.named format.qualifiedName format.uri format.uuid ip.isCanonical jsonpatch.escapeKey \
    lists.range optional.none optional.of optional.ofNonZeroValue optional.unwrap sets.contains sets.equivalent \
    sets.intersects strings.quote";

/// Whether a name is one of the words of a list.
pub fn is_listed(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|known| known == name)
}

/// What a function results in, where that is known without its arguments.
pub fn result_of<'a>(function: &str) -> Type<'a> {
    match function {
        "size" | "int" | "indexOf" | "lastIndexOf" | "family" | "prefixLength" | "asInteger" | "getDate"
        | "getDayOfMonth" | "getDayOfWeek" | "getDayOfYear" | "getFullYear" | "getHours" | "getMilliseconds"
        | "getMinutes" | "getMonth" | "getSeconds" => Type::Int,
        "find" | "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" => Type::Text,
        "isSorted"
        | "isGreaterThan"
        | "isLessThan"
        | "isInteger"
        | "containsIP"
        | "containsCIDR"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "isSemver" => Type::Bool,
        "asApproximateFloat" => Type::Double,
        "string" | "lowerAscii" | "upperAscii" | "trim" | "join" | "charAt" | "replace" | "substring" | "format" => {
            Type::Text
        }
        "double" => Type::Double,
        "timestamp" => Type::Named("timestamp"),
        "duration" => Type::Named("duration"),
        "bytes" => Type::Named("bytes"),
        "quantity" => Type::Named("kubernetes.Quantity"),
        "url" => Type::Named("kubernetes.URL"),
        "cidr" => Type::Named("net.CIDR"),
        "allowed" | "errored" | "hasValue" | "isIP" | "isCIDR" | "isURL" | "isQuantity" | "startsWith" | "endsWith"
        | "contains" | "matches" | "intersects" | "equivalent" => Type::Bool,
        "type" => Type::Named("type"),
        "split" | "findAll" => Type::Scalars("string"),
        _ => Type::Dyn,
    }
}

/// What a mutating policy lays over an object, and an operation of a JSON patch.
pub const OBJECT: &str = "Object";
pub const PATCH: &str = "JSONPatch";

pub const AUTHORIZER: Type<'static> = Type::Named("kubernetes.authorization.Authorizer");
pub const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";

/// What the functions of the authorizer and of what it gives result in (`apiserver/pkg/cel/library/authz.go`); `None`
/// for a value that has nothing to do with it, an error for what such a value has not.
pub fn authorizer_result<'a>(target: Type<'_>, function: &str, arguments: &[Type<'_>]) -> Option<Result<Type<'a>, ()>> {
    const GROUP_CHECK: &str = "kubernetes.authorization.GroupCheck";
    const PATH_CHECK: &str = "kubernetes.authorization.PathCheck";
    const DECISION: &str = "kubernetes.authorization.Decision";
    let Type::Named(name) = target else { return None };
    let kind = name.strip_prefix("kubernetes.authorization.")?;
    let (result, count) = match (kind, function) {
        ("Authorizer", "path") => (Type::Named(PATH_CHECK), 1),
        ("Authorizer", "group") => (Type::Named(GROUP_CHECK), 1),
        ("Authorizer", "serviceAccount") => (AUTHORIZER, 2),
        ("GroupCheck", "resource") => (Type::Named(RESOURCE_CHECK), 1),
        ("ResourceCheck", "subresource" | "namespace" | "name" | "fieldSelector" | "labelSelector") => {
            (Type::Named(RESOURCE_CHECK), 1)
        }
        ("ResourceCheck" | "PathCheck", "check") => (Type::Named(DECISION), 1),
        ("Decision", "allowed" | "errored") => (Type::Bool, 0),
        ("Decision", "reason" | "error") => (Type::Text, 0),
        _ => return Some(Err(())),
    };
    let texts = arguments.iter().all(|ty| matches!(ty, Type::Text | Type::Dyn | Type::Error));
    Some(if texts && arguments.len() == count { Ok(result) } else { Err(()) })
}

/// Whether a value of this type may have the function.
pub fn has_member(target: Type<'_>, function: &str) -> bool {
    match function {
        "startsWith" | "endsWith" | "contains" | "matches" => {
            !matches!(target, Type::Int | Type::Double | Type::Bool | Type::Named(_) | Type::Optional(..))
        }
        "hasValue" | "or" | "orValue" | "value" => matches!(target, Type::Dyn | Type::Error | Type::Optional(..)),
        _ => true,
    }
}

/// How many arguments a function takes, where they are counted; `member` says that a value stands before it.
fn arity(function: &str, member: bool) -> Option<std::ops::RangeInclusive<usize>> {
    Some(match function {
        "trim" | "lowerAscii" | "upperAscii" | "isSorted" | "sum" | "min" | "max" | "distinct" | "sort" | "reverse"
        | "hasValue" | "first" | "last" | "family" | "getScheme" | "getHost" | "getHostname" | "getPort"
        | "getQuery" | "getEscapedPath" | "asInteger" | "isInteger" | "asApproximateFloat" => 0..=0,
        "join" => 0..=1,
        "charAt" | "find" | "startsWith" | "endsWith" | "contains" | "orValue" | "isGreaterThan" | "isLessThan"
        | "compareTo" | "containsIP" | "containsCIDR" | "format" | "isIP" | "isCIDR" | "isURL" | "isQuantity"
        | "url" | "cidr" | "quantity" | "int" | "uint" | "double" | "string" | "bool" | "bytes" | "duration"
        | "timestamp" | "dyn" | "type" => 1..=1,
        "split" | "substring" | "indexOf" | "lastIndexOf" | "findAll" | "semver" | "isSemver" => 1..=2,
        "replace" => 2..=3,
        "slice" => 2..=2,
        "matches" if member => 1..=1,
        "matches" => 2..=2,
        _ => return None,
    })
}

/// Whether `size` counts what is in such a value.
fn has_size(ty: Type<'_>) -> bool {
    match ty {
        Type::Dyn | Type::Error | Type::Text | Type::Named("bytes") => true,
        other => other.element().is_some(),
    }
}

/// Whether the functions of sets may take these: two lists, whose elements may be of one type (`ext.Sets`).
pub fn are_sets(arguments: &[Type<'_>]) -> bool {
    let listed =
        |ty: Type<'_>| matches!(ty, Type::Dyn | Type::Error) || ty.element().is_some_and(|element| element.is_list);
    matches!(arguments, [a, b] if listed(*a) && listed(*b) && is_comparable(operators::EQUALS, *a, *b))
}

/// Whether an operator of arithmetic stands between values of these types, as far as they are known.
pub fn may_calculate(operator: &str, a: Type<'_>, b: Type<'_>) -> bool {
    let list = |ty: Type<'_>| matches!(ty, Type::List(_) | Type::Scalars(_));
    let refused = |ty: Type<'_>| match ty {
        Type::Bool | Type::Null | Type::Map(_) | Type::Object(..) | Type::Metadata | Type::Optional(..) => true,
        Type::Text | Type::List(_) | Type::Scalars(_) => operator != operators::ADD,
        Type::Double => operator == operators::MODULO,
        _ => false,
    };
    if refused(a) || refused(b) {
        return false;
    }
    if [a, b].iter().any(|ty| matches!(ty, Type::Dyn | Type::Error)) {
        return true;
    }
    if a.known_scalar() || b.known_scalar() {
        return a.name() == b.name();
    }
    list(a) == list(b) && (!list(a) || is_comparable(operators::EQUALS, a, b))
}

/// Whether the arguments can be those of the function: how many there are, and types that are known not to fit.
pub fn takes_arguments(target: Option<Type<'_>>, function: &str, arguments: &[Type<'_>]) -> bool {
    let text = |ty: Option<&Type<'_>>| !matches!(ty, Some(Type::Int | Type::Double | Type::Bool));
    if arity(function, target.is_some()).is_some_and(|counts| !counts.contains(&arguments.len())) {
        return false;
    }
    match (function, target) {
        ("size", Some(of)) => arguments.is_empty() && has_size(of),
        ("size", None) => matches!(arguments, [of] if has_size(*of)),
        ("quantity" | "url" | "cidr" | "semver" | "isIP" | "isCIDR" | "isURL" | "isQuantity" | "isSemver", None) => {
            text(arguments.first()) && !arguments.iter().any(|ty| ty.is_compound())
        }
        ("string" | "int" | "uint" | "double" | "bool" | "bytes" | "duration" | "timestamp", None) => {
            !arguments.iter().any(|ty| ty.is_compound())
        }
        ("validate", Some(_)) => text(arguments.first()),
        ("substring" | "charAt", Some(_)) => !arguments.iter().any(|ty| ty.known_scalar() && !matches!(ty, Type::Int)),
        ("add" | "sub", Some(Type::Named("kubernetes.Quantity"))) => {
            !matches!(arguments, [Type::Text | Type::Double | Type::Bool])
        }
        ("orValue", Some(Type::Optional(node, resource))) => {
            arguments.iter().all(|ty| is_comparable(operators::EQUALS, Type::of(node, resource), *ty))
        }
        ("join", Some(of)) => matches!(of, Type::Dyn | Type::Error) || may_contain(of, Type::Text),
        ("startsWith" | "endsWith" | "contains" | "matches", Some(_)) => text(arguments.first()),
        ("split" | "indexOf" | "lastIndexOf" | "replace", Some(Type::Text)) => text(arguments.first()),
        ("isGreaterThan" | "isLessThan" | "compareTo", Some(_)) => !arguments.iter().any(|ty| ty.known_scalar()),
        ("sign", Some(Type::Named(_))) => false,
        ("flatten", Some(Type::Scalars(_))) => false,
        ("sum", Some(Type::Scalars(element))) => !matches!(element, "string" | "bool"),
        ("flatten", Some(Type::List(Some(node)))) => !Type::of(node, false).known_scalar(),
        ("sum", Some(Type::List(Some(node)))) => !matches!(Type::of(node, false), Type::Text | Type::Bool),
        _ => true,
    }
}

/// Whether a value of this type can be what a condition looks at.
pub fn is_condition(ty: Type<'_>) -> bool {
    matches!(ty, Type::Bool | Type::Dyn | Type::Error)
}

/// Whether a value can be among the elements of a list or the keys of a map, as far as both are known.
pub fn may_contain(container: Type<'_>, value: Type<'_>) -> bool {
    let element = match container {
        Type::List(Some(node)) => Type::of(node, node.embedded),
        Type::Scalars(element) => return !value.known_scalar() || element == value.name(),
        Type::Map(_) => Type::Text,
        Type::Text | Type::Bool | Type::Int | Type::Double | Type::Object(..) | Type::Metadata => return false,
        _ => return true,
    };
    !(element.known_scalar() && value.known_scalar()) || element.name() == value.name()
}

/// Whether an operator compares values of these types.
pub fn is_comparable(operator: &str, a: Type<'_>, b: Type<'_>) -> bool {
    let loose = |ty: Type<'_>| matches!(ty, Type::Dyn | Type::Error);
    let optional = |ty: Type<'_>| matches!(ty, Type::Optional(..));
    if loose(a) || loose(b) {
        return true;
    }
    if optional(a) != optional(b) {
        return false;
    }
    let number = |ty: Type<'_>| matches!(ty, Type::Int | Type::Double | Type::Named("uint"));
    let equality = matches!(operator, operators::EQUALS | operators::NOT_EQUALS);
    let nullable = |ty: Type<'_>| !ty.known_scalar() && !matches!(ty, Type::List(_) | Type::Scalars(_) | Type::Map(_));
    if (matches!(a, Type::Null) && nullable(b)) || (nullable(a) && matches!(b, Type::Null)) {
        return equality;
    }
    match (a.element(), b.element()) {
        _ if !equality && (a.is_compound() || b.is_compound()) => false,
        (Some(a), Some(b)) => a.is_list == b.is_list && (a.name == "dyn" || b.name == "dyn" || a.name == b.name),
        (None, None) => a.name() == b.name() || (number(a) && number(b) && !equality),
        _ => false,
    }
}
