//! Collective operations: torch's arguments on spans, process groups in the header and the execution trace.

use serde_json::{Value, json};
use support::{File, record, record_with};
use tracing_kineto::torch::TorchOptions;
use tracing_kineto::{ActivityType, ActivityTypes, Collective, DistributedInfo, ProcessGroup};

fn world() -> ProcessGroup {
    ProcessGroup::new("0", [0, 1]).with_description("default_pg").with_backend("cuda:nccl")
}

fn run(collective: Collective<'_>) {
    collective.span().in_scope(|| ());
}

/// Returns the file's `distributedInfo`.
fn distributed(file: &File) -> &Value {
    &file.json["distributedInfo"]
}

#[test]
fn collective_has_torchs_arguments() {
    let group = world();
    let collective = Collective::new("all_to_allv", &group, 1)
        .with_elements("Float", 64, 32)
        .with_splits(&[1; 40], &[16, 16])
        .with_seq(9)
        .asynchronous();
    let file = record(|| run(collective));
    let slice = file.slice("record_param_comms");
    let mut args = slice.args.clone();
    let args = args.as_object_mut().unwrap();
    let id = args.remove("Comms Id").unwrap();
    ["External id", "span id", "target"].iter().for_each(|key| drop(args.remove(*key).unwrap()));
    let expected = json!({
        "Collective name": "all_to_allv",
        "dtype": "Float",
        "In msg nelems": 64,
        "Out msg nelems": 32,
        "In split size": format!("[{}..., 1]", "1, ".repeat(29)),
        "Out split size": "[16, 16]",
        "Global rank start": 0,
        "Global rank stride": 1,
        "Group size": 2,
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1]",
        "backend_config": "cuda:nccl",
        "Rank": 1,
        "Seq": 9,
        "Is asynchronized op": true,
    });
    assert_eq!((slice.cat.as_str(), Value::from(args.clone())), ("cpu_op", expected));
    let elsewhere = record(|| run(Collective::new("all_to_allv", &group, 0).with_seq(9)));
    assert_eq!(elsewhere.slice("record_param_comms").args["Comms Id"], id);
    assert!(id.is_u64());
}

#[test]
fn collective_omits_arguments_that_are_not_set() {
    let group = ProcessGroup::new("uneven", [0, 1, 5]);
    let file = record(|| run(Collective::new("send", &group, 0).to_rank(2)));
    let args = &file.slice("record_param_comms").args;
    let absent = ["dtype", "In msg nelems", "Global rank start", "Seq", "Comms Id", "Src Rank", "In split size"];
    assert!(absent.iter().all(|key| args.get(key).is_none()), "{args}");
    assert_eq!((&args["Dst Rank"], &args["Is asynchronized op"]), (&json!(2), &json!(false)));
}

// Shows the key TORCH_PROFILER_ENABLE_COLLECTIVE_PROFILING.
#[test]
fn collectives_have_their_own_type_when_enabled() {
    let group = world();
    let work = || run(Collective::new("allreduce", &group, 0));
    let cat = |file: &File| file.slice("record_param_comms").cat;
    assert_eq!(
        cat(&record_with(|builder| builder.torch(TorchOptions::new().collective_profiling(true)), work)),
        "collective_comm"
    );
    let alone = record_with(
        |builder| builder.activities(ActivityTypes::from(ActivityType::CollectiveComm)),
        || {
            work();
            tracing::info_span!("op").in_scope(|| ());
        },
    );
    assert_eq!((cat(&alone).as_str(), alone.slices().len()), ("collective_comm", 1));
    assert_eq!(cat(&record(work)), "cpu_op");
}

#[test]
fn process_groups_are_in_the_header() {
    let (all, pairs) = (world(), ProcessGroup::new("pp", (0..64).step_by(2).collect::<Vec<_>>()));
    let work = || {
        for seq in 0..2 {
            run(Collective::new("allreduce", &all, 1).with_seq(seq));
            run(Collective::new("send", &pairs, 0).with_seq(seq).to_rank(1));
        }
    };
    let from_collectives = record(work);
    let ranks: Vec<u32> = (0..64).step_by(2).collect();
    let groups = json!([
        {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 1]},
        {"pg_name": "pp", "pg_desc": "", "backend_config": "", "pg_size": 32, "ranks": ranks},
    ]);
    let expected = json!({"backend": "nccl", "rank": 1, "world_size": 2, "pg_count": 2, "pg_config": groups});
    assert_eq!(distributed(&from_collectives), &expected);
    let known = DistributedInfo::new(5, 8).with_process_group(ProcessGroup::new("0", [4, 5])).with_nccl_version("2.26");
    let file = record_with(|builder| builder.distributed(known), work);
    let info = distributed(&file);
    assert_eq!((&info["rank"], &info["world_size"], &info["nccl_version"]), (&json!(5), &json!(8), &json!("2.26")));
    assert_eq!((&info["pg_config"][0]["ranks"], &info["pg_count"]), (&json!([4, 5]), &json!(2)));
    // The number of processes is unknown here.
    assert_eq!(distributed(&record(|| run(Collective::new("send", &pairs, 0)))), &Value::Null);
}

#[test]
fn process_groups_have_a_node_in_the_execution_trace() {
    let (all, one) = (world(), ProcessGroup::new("1", [1]));
    let file = record(|| {
        run(Collective::new("allreduce", &all, 1).with_elements("Float", 4, 4));
        run(Collective::new("broadcast", &one, 0));
    });
    let mut text = Vec::new();
    file.trace.write_execution_trace(&mut text).unwrap();
    let execution: Value = serde_json::from_slice(&text).unwrap();
    let node = &execution["nodes"][2];
    assert_eq!((&node["name"], &node["ctrl_deps"]), (&json!("## process_group:init ##"), &json!(2)));
    let groups: Value = serde_json::from_str(node["inputs"]["values"][0].as_str().unwrap()).unwrap();
    let expected = json!([
        {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [], "group_size": 2,
         "group_count": 2},
        {"pg_name": "1", "pg_desc": "", "backend_config": "", "ranks": [1], "group_size": 1, "group_count": 2},
    ]);
    assert_eq!(groups, expected);
    let attrs = execution["nodes"][3]["attrs"].as_array().unwrap();
    let attr = |name: &str| attrs.iter().find(|attr| attr["name"] == name).map(|attr| attr["value"].clone());
    assert_eq!(
        (attr("pg_name"), attr("pg_size"), attr("dtype")),
        (Some("0".into()), Some(2.into()), Some("Float".into()))
    );
    assert_eq!((attr("global_rank_start"), attr("is_asynchronized_op")), (Some(0.into()), Some("false".into())));
}
