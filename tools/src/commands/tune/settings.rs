//! Environment variables of UCX and NCCL, as settings with their purpose.
#![forbid(unsafe_code)]

use serde::Serialize;

use super::model::Model;

pub(super) const BANDWIDTH: &str = "UCX_GDR_COPY_BW";
pub(super) const LATENCY: &str = "UCX_GDR_COPY_LAT";
pub(super) const THRESHOLD: &str = "UCX_RNDV_THRESH";

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) value: String,
    purpose: &'static str,
}

impl Setting {
    /// UCX's model of the mapping. UCX counts in MiB; a list of keys begins with the default of those that it leaves out.
    pub(super) fn model(put: Model, get: Model) -> Vec<Setting> {
        vec![
            Setting {
                name: BANDWIDTH,
                value: format!("0MBs,get_dedicated:{:.0}MBs,put_shared:{:.0}MBs", get.mib_per_s, put.mib_per_s),
                purpose: "UCX: bandwidth of reads and writes; without it UCX's built-in numbers count",
            },
            Setting {
                name: LATENCY,
                value: format!("get:{:.0}ns,put:{:.0}ns", get.latency_ns, put.latency_ns),
                purpose: "UCX: latency of reads and writes",
            },
        ]
    }

    /// The first size that UCX sends by rendezvous within a node; it chooses by itself between nodes.
    pub(super) fn threshold(bytes: impl ToString) -> Setting {
        Setting {
            name: THRESHOLD,
            value: format!("auto,intra:{}", bytes.to_string()),
            purpose: "UCX: messages within a node go by rendezvous from this size on",
        }
    }

    pub(super) fn nccl() -> Setting {
        Setting { name: "NCCL_GDRCOPY_ENABLE", value: "1".into(), purpose: "NCCL: use libgdrapi; the default is 0" }
    }

    /// A paragraph of a shell fragment.
    pub(super) fn text(&self) -> String {
        let Setting { name, value, purpose } = self;
        format!("\n# {purpose}\n{name}={value}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_syntax_of_ucx() {
        let model = |latency_ns, mib_per_s| Model { latency_ns, mib_per_s };
        let settings = Setting::model(model(130.4, 19999.6), model(1000.0, 987.2));
        let values: Vec<_> = settings.iter().map(|setting| &setting.value[..]).collect();
        assert_eq!(values, ["0MBs,get_dedicated:987MBs,put_shared:20000MBs", "get:1000ns,put:130ns"]);
        assert_eq!(Setting::threshold(24577).value, "auto,intra:24577");
    }
}
