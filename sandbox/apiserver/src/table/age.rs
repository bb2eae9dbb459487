//! How old something is, in kubectl's short form (`apimachinery/pkg/util/duration`).

use jiff::Timestamp;
use serde_json::Value;

/// `3s`, `2m5s`, `4h`, `7d3h`...
pub fn human_duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let with_rest = |main: i64, unit: char, rest: i64, rest_unit: char| {
        if rest == 0 { format!("{main}{unit}") } else { format!("{main}{unit}{rest}{rest_unit}") }
    };
    match seconds {
        ..-1 => "<invalid>".into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => with_rest(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => with_rest(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => with_rest(days, 'd', hours % 24, 'h'),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => with_rest(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

/// The age of a timestamp member; `<unknown>` when there is none.
pub fn age_since(time: Option<&Value>, now: Timestamp) -> String {
    let Some(text) = time.and_then(Value::as_str).filter(|t| !t.is_empty()) else { return "<unknown>".into() };
    match text.parse::<Timestamp>() {
        Ok(then) => human_duration(now.duration_since(then).as_secs()),
        Err(_) => "<invalid>".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_get_coarser_as_they_grow() {
        let shown: Vec<String> =
            [-5, -1, 0, 119, 120, 125, 600, 10_799, 10_800, 14_700, 28_800, 172_800, 183_600, 691_200, 31_536_000 * 3]
                .iter()
                .map(|s| human_duration(*s))
                .collect();
        assert_eq!(
            shown,
            [
                "<invalid>",
                "0s",
                "0s",
                "119s",
                "2m",
                "2m5s",
                "10m",
                "179m",
                "3h",
                "4h5m",
                "8h",
                "2d",
                "2d3h",
                "8d",
                "3y"
            ]
        );
    }
}
