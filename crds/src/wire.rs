//! How API objects are read and written, and the macros that declare their types.
//!
//! Reading is tolerant, so that one odd object never breaks a watch: unknown fields are ignored, `null` counts as
//! absent, an integer counts as a quantity, and an unknown enum word is kept. What a *schema* demands is checked by the
//! API server: see [`crate::schema`].

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Deserializer};

/// Quantities by resource name, as written; `caldera_core::resources` holds the exact values.
pub type ResourceList = BTreeMap<String, Quantity>;

/// Reads `null` as the default: Go writes empty lists and maps so.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A set of words as an enum, with a variant for words that are not known here: reading and writing back changes
/// nothing.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* #[doc = concat!("`", $word, "`")] $variant,)+
            /// A word that is not in the list.
            Other(String),
        }

        impl $name {
            /// The word.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    _ => Self::Other(word.to_owned()),
                }
            }
        }

        /// No word at all, which only a missing required field reads as.
        impl Default for $name {
            fn default() -> Self {
                Self::Other(String::new())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(String::deserialize(deserializer)?.as_str()))
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($word),+] })
            }
        }
    };
}
pub(crate) use words;

/// Structs of an API group. Field names are camelCase, and an optional field, list or map that is empty is left out, as
/// Go's `omitempty` does. `#[serde_with(skip_apply)]` marks a list or map that the schema requires.
macro_rules! api_types {
    ($($(#[$meta:meta])* pub struct $name:ident { $($fields:tt)* })+) => {$(
        #[serde_with_macros::apply(
            crate = "serde_with_macros",
            Option => #[serde(default, skip_serializing_if = "Option::is_none")],
            Vec => #[serde(
                default,
                deserialize_with = "crate::wire::null_is_default",
                skip_serializing_if = "Vec::is_empty"
            )],
            BTreeMap => #[serde(
                default,
                deserialize_with = "crate::wire::null_is_default",
                skip_serializing_if = "std::collections::BTreeMap::is_empty"
            )],
            ResourceList => #[serde(
                default,
                deserialize_with = "crate::wire::null_is_default",
                skip_serializing_if = "std::collections::BTreeMap::is_empty"
            )],
        )]
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        $(#[$meta])*
        pub struct $name { $($fields)* }
    )+};
}
pub(crate) use api_types;

/// The word for a kind in the API: the type's name, where no other is given.
macro_rules! kind_word {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident $kind:literal) => {
        $kind
    };
}
pub(crate) use kind_word;

/// A kind of the API: its root object, with what is always there in the first braces and what may be absent in the
/// second. `as` gives it another name in the API than the type has. `kube`'s derive would do, but for one thing: an
/// object without `spec` (a Queue may be made so) must be read.
macro_rules! object {
    (
        $(#[$doc:meta])*
        $name:ident $(as $kind:literal)?, $group:literal, $version:literal, $plural:literal, $scope:ident
        { $($always:ident: $always_type:ty),* $(,)? }
        { $($maybe:ident: $maybe_type:ty),* $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
        #[serde(default)]
        #[allow(missing_docs, reason = "metadata, spec and status are those of every object")]
        pub struct $name {
            #[schemars(skip)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $(pub $always: $always_type,)*
            $(pub $maybe: Option<$maybe_type>,)*
        }

        impl $name {
            /// An object of this name.
            #[must_use]
            pub fn new(name: &str, $($always: $always_type),*) -> Self {
                let metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                    name: Some(name.to_owned()),
                    ..Default::default()
                };
                Self { metadata, $($always,)* $($maybe: None,)* }
            }
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = kube::core::$scope;

            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                crate::wire::kind_word!($name $($kind)?).into()
            }
            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("apiVersion", concat!($group, "/", $version))?;
                map.serialize_entry("kind", crate::wire::kind_word!($name $($kind)?))?;
                map.serialize_entry("metadata", &self.metadata)?;
                $(map.serialize_entry(stringify!($always), &self.$always)?;)*
                $(
                    if let Some(value) = &self.$maybe {
                        map.serialize_entry(stringify!($maybe), value)?;
                    }
                )*
                map.end()
            }
        }
    };
}
pub(crate) use object;
