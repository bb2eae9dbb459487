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
    Other,
    /// What an expression has that was complained about: it fits everywhere.
    Error,
    /// A value of this schema, which may be missing: `oldSelf` under `optionalOldSelf`.
    Optional(&'a Node, bool),
    List(Option<&'a Node>),
    Map(Option<&'a Node>),
    /// An object with declared fields; whether it is a resource, whose metadata has only names.
    Object(&'a Node, bool),
    /// The metadata of a resource.
    Metadata,
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
                Some(Format::Text("date" | "date-time" | "datetime" | "duration" | "byte")) => Self::Other,
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
            Self::Dyn | Self::Other => "dyn",
            Self::Error => "!error!",
            Self::Optional(..) => "optional_type(dyn)",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Double => "double",
            Self::Text => "string",
            Self::List(_) => "list(dyn)",
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
            Self::Map(node) => format!("map(string, {})", inner(node)),
            other => other.name().to_owned(),
        }
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
        "size" | "int" | "indexOf" | "lastIndexOf" => Type::Int,
        "string" | "lowerAscii" | "upperAscii" | "trim" | "join" | "charAt" | "replace" | "substring" | "format" => {
            Type::Text
        }
        "double" => Type::Double,
        "allowed" | "errored" | "hasValue" | "isIP" | "isCIDR" | "isURL" | "isQuantity" | "startsWith" | "endsWith"
        | "contains" | "matches" => Type::Bool,
        "split" | "findAll" => Type::List(None),
        _ => Type::Dyn,
    }
}

/// Whether a value of this type may have the function.
pub fn has_member(target: Type<'_>, function: &str) -> bool {
    match function {
        "startsWith" | "endsWith" | "contains" | "matches" => {
            !matches!(target, Type::Int | Type::Double | Type::Bool | Type::Optional(..))
        }
        "hasValue" | "or" | "orValue" => matches!(target, Type::Dyn | Type::Other | Type::Error | Type::Optional(..)),
        _ => true,
    }
}

/// Whether an operator compares values of these types.
pub fn is_comparable(operator: &str, a: Type<'_>, b: Type<'_>) -> bool {
    let loose = |ty: Type<'_>| matches!(ty, Type::Dyn | Type::Other | Type::Error);
    let optional = |ty: Type<'_>| matches!(ty, Type::Optional(..));
    if loose(a) || loose(b) {
        return true;
    }
    if optional(a) != optional(b) {
        return false;
    }
    let number = |ty: Type<'_>| matches!(ty, Type::Int | Type::Double);
    let equality = matches!(operator, operators::EQUALS | operators::NOT_EQUALS);
    let fits = a.name() == b.name() || (number(a) && number(b) && !equality);
    let compared = |ty: Type<'_>| ty.known_scalar() || matches!(ty, Type::Null);
    fits || !(compared(a) && compared(b))
}
