//! Arguments of `caldera reservation`.

use std::path::PathBuf;

use caldera_core::quantity::Quantity;
use clap::{Args as ClapArgs, Subcommand};
use jiff::Timestamp;

use super::{
    names,
    values::{parse_amount, parse_seconds, parse_time},
};
use crate::output::{ListOutput, ListOutputParser};

#[derive(Debug, Subcommand)]
pub enum ReservationAction {
    /// Keeps an amount of the whole fleet for a time: no job takes it that would run into that time.
    Create(Box<ReservationCreateArgs>),
    /// Lists what is kept: amounts, and clusters under maintenance.
    List {
        /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        /// How the answer looks.
        #[arg(short, long, default_value = "table", value_parser = ListOutputParser)]
        output: ListOutput,
    },
    /// Takes reservations away: what they kept is free for all.
    Delete {
        /// Which.
        #[arg(value_name = "NAME", add = names::complete_reservation_names(), required = true)]
        names: Vec<String>,
        /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
    },
}

#[derive(Debug, ClapArgs)]
pub struct ReservationCreateArgs {
    /// A name for it.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What is kept, as `cpu=100,nvidia.com/gpu=8`.
    #[arg(long = "amount", value_name = "AMOUNTS", value_delimiter = ',', required = true, value_parser = parse_amount)]
    pub amounts: Vec<(String, Option<Quantity>)>,
    /// When it begins, as 2026-11-26T08:00:00Z; without it now.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub start: Option<Timestamp>,
    /// How long it takes, as 45m or 4h.
    #[arg(long, value_name = "DURATION", value_parser = parse_seconds)]
    pub duration: i64,
    /// Jobs of this queue, and of those below it, may use it; may be given more than once. Without it nobody's.
    #[arg(long = "for-queue", value_name = "QUEUE", value_delimiter = ',', add = names::complete_queue_names())]
    pub queues: Vec<String>,
    /// How long before it begins no job takes of it that does not say how long it runs; 24h without it.
    #[arg(long, value_name = "DURATION", value_parser = parse_seconds)]
    pub notice: Option<i64>,
    /// Why, for all who ask what their jobs wait for.
    #[arg(long, value_name = "WORDS")]
    pub reason: Option<String>,
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}
