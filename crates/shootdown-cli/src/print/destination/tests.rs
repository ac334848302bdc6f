use super::*;

/// A page of an earlier run.
const OURS: &str = "<!DOCTYPE html>\n<head><title>a — Shootdown</title></head>\n";

fn page(path: &Path) -> Result<Destination, Failure> {
    Destination::new("--html", path, Kind::Page)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn checking_a_destination_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    page(&folder.path().join("r.html")).unwrap();
    assert!(names(folder.path()).is_empty());
}

#[test]
fn write_replaces_the_file_without_leftovers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.html");
    fs::write(&path, OURS).unwrap();
    let destination = page(&path).unwrap();
    destination.write("new", &AtomicBool::new(false)).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(names(folder.path()), ["r.html"]);
}

#[test]
fn interrupt_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.html");
    fs::write(&path, OURS).unwrap();
    let destination = page(&path).unwrap();
    assert_eq!(
        destination.write("new", &AtomicBool::new(true)),
        Err(Failure::Interrupted)
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), OURS);
    assert_eq!(names(folder.path()), ["r.html"]);
}

#[test]
#[cfg(unix)]
fn write_through_a_symlink_replaces_its_target() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("real.html"), OURS).unwrap();
    let link = folder.path().join("link.html");
    std::os::unix::fs::symlink("real.html", &link).unwrap();
    page(&link).unwrap().write("new", &AtomicBool::new(false)).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(folder.path().join("real.html")).unwrap(), "new");
}

#[test]
fn folders_and_missing_folders_are_refused_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let text = |path: &Path| page(path).unwrap_err().to_string();
    assert!(text(folder.path()).ends_with(": is a folder; name a file in it"));
    assert!(text(&folder.path().join("no/r.html")).ends_with("create it or choose another path"));
}

#[test]
fn input_file_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let (input, link) = (folder.path().join("in.txt"), folder.path().join("link"));
    fs::write(&input, "recorded").unwrap();
    std::os::unix::fs::symlink(&input, &link).unwrap();
    let over = |path: &Path| Destination::apart_from("--html", path, Kind::Page, &[Path::new("milan-72"), &input]);
    for path in [&input, &link] {
        let line = over(path).unwrap_err().to_string();
        assert!(line.ends_with(": is what is read; choose another path"), "{line}");
    }
    over(&folder.path().join("out.html")).unwrap();
}

#[test]
fn build_folder_is_that_of_the_enclosing_workspace() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("crates/a");
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("Cargo.toml"), "[package]\n").unwrap();
    fs::write(folder.path().join("Cargo.toml"), "[workspace]\n").unwrap();
    let expected = env::var_os("CARGO_TARGET_DIR").map_or_else(|| folder.path().join("target"), PathBuf::from);
    assert_eq!(build_folder(&inner), Some(expected));
}

#[test]
fn foreign_file_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("thesis.html");
    fs::write(&path, "<!DOCTYPE html><title>My thesis</title>").unwrap();
    let line = page(&path).unwrap_err().to_string();
    assert!(
        line.ends_with(
            "thesis.html: exists and is no report of this program; choose another path, or add --force to overwrite it"
        ),
        "{line}"
    );
    for (kind, ours) in [
        (Kind::Page, OURS),
        (Kind::Sweep, "sweep,point,points,workload\n"),
        (Kind::Model, "# Mine.\n# Written by `shootdown calibrate`. Numbers\n"),
        (Kind::Counterexample, "shootdown check 2\nrace a\n"),
        (Kind::Page, ""),
        (Kind::Recording, ""),
    ] {
        fs::write(&path, ours).unwrap();
        Destination::new("-o", &path, kind).unwrap();
        let other = if kind == Kind::Image { Kind::Page } else { Kind::Image };
        assert_eq!(Destination::new("-o", &path, other).is_ok(), ours.is_empty(), "{kind}");
    }
}

#[test]
fn dash_is_refused_as_a_file() {
    let line = page(Path::new("-")).unwrap_err().to_string();
    assert!(
        line.contains("--html -: a file is written, not standard output"),
        "{line}"
    );
}
