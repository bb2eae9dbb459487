//! `openb_pods.csv` (Weng et al., ATC'23): a pod a row, each a job of its own.
//!
//! A share of a GPU counts as a whole one: Kubernetes gives out whole devices. The queue is the pod's QoS class. Pods
//! that were never scheduled have no run time and are left out.

use caldera_core::{quantity::Quantity, resources::Resources, text::count_noun};

use super::{GPU, ReadError, Reader, table::Table};
use crate::{
    time::Millis,
    world::{self, Job},
};

pub(super) fn read_openb_jobs(text: &str, reader: &mut Reader<'_>) -> Result<Vec<Job>, ReadError> {
    let columns =
        ["name", "cpu_milli", "memory_mib", "num_gpu", "qos", "creation_time", "deletion_time", "scheduled_time"];
    let table = Table::read(text, &columns)?;
    let (mut jobs, mut never_ran, mut shared) = (Vec::new(), 0, 0);
    for row in table.rows() {
        let (created, deleted): (Millis, Millis) = (row.read("creation_time")?, row.read("deletion_time")?);
        let Some(scheduled) = row.maybe::<Millis>("scheduled_time")? else {
            never_ran += 1;
            continue;
        };
        let (milli, mib, gpus): (u32, u32, u32) =
            (row.read("cpu_milli")?, row.read("memory_mib")?, row.read("num_gpu")?);
        shared += u32::from(gpus == 1 && row.maybe::<u32>("gpu_milli")?.is_some_and(|milli| milli < 1_000));
        let request: Resources = [
            ("cpu", Quantity::from_milli(milli.into())),
            ("memory", Quantity::from_units(i64::from(mib) << 20).in_binary()),
            (GPU, Quantity::from_units(gpus.into())),
        ]
        .into_iter()
        .collect();
        let task = world::task("pod", 1, 1, reader.offered_only(request));
        jobs.push(Job {
            name: row.read::<String>("name")?.into(),
            queue: row.read::<String>("qos")?.to_lowercase().into(),
            priority: 0,
            arrival: created,
            run: deleted.since(scheduled),
            estimate: None,
            shape: reader.shapes.gang(world::gang(vec![task])),
            running: None,
        });
    }
    if never_ran > 0 {
        reader.notes.push(format!("left out: {} that never ran", count_noun(never_ran, "pod")));
    }
    if shared > 0 {
        reader
            .notes
            .push(format!("taken to ask for a whole GPU: {} that asked for a part of one", count_noun(shared, "pod")));
    }
    Ok(jobs)
}
