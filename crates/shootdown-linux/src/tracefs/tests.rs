use super::*;

#[test]
fn lost_events_sum_overruns_and_drops() {
    let stats = "entries: 4313\noverrun: 3\ncommit overrun: 4\nbytes: 9\noldest event ts: 1.0\ndropped events: 5\n";
    assert_eq!(lost_in(stats), 12);
    assert_eq!(lost_in(""), 0);
}

#[test]
fn only_instances_of_dead_recorders_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let instances = folder.path().join("instances");
    let ours = std::process::id();
    let start = start_of(ours).unwrap();
    let living = format!("shootdown-{ours}-{start}");
    let reused = format!("shootdown-{ours}-1");
    for name in ["foreign", "shootdown-", "shootdown-x-1", &living, &reused] {
        fs::create_dir_all(instances.join(name)).unwrap();
    }
    let tracefs = Tracefs::at(folder.path());
    assert_eq!(tracefs.remove_leftovers(), [reused]);
    assert!(instances.join("shootdown-x-1").exists());
    assert!(instances.join("foreign").exists() && instances.join(&living).exists());
}

#[test]
fn missing_tracefs_is_named_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let error = Tracefs::at(&folder.path().join("no")).create(64).unwrap_err();
    assert!(error.to_string().contains("no/instances/shootdown-"), "{error}");
}
