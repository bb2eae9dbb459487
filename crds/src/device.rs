//! Devices of a member by dynamic resource allocation (`resource.k8s.io/v1`): what drivers publish, what DeviceClasses
//! select of that, and what pods have claimed.
//!
//! | module | holds |
//! |---|---|
//! | `objects` | ResourceSlices, DeviceClasses and ResourceClaims, as far as they are read |
//! | `selector` | the CEL expressions of a DeviceClass |
//! | `member_devices` | how many devices each node has under each name, and what each pod has of them |
//! | `partitions` | how many devices fit that share what counters tell |
//!
//! Reading never fails: an object without a name is left out, and what is malformed in one counts as absent.

mod member_devices;
mod objects;
mod partitions;
mod selector;

pub use member_devices::MemberDevices;
pub use objects::{Device, DeviceClass, DeviceId, ExtendedClaim, ResourceClaim, ResourceSlice};
