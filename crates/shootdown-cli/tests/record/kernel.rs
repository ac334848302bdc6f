//! A folder that behaves as tracefs: a new folder in `instances` gets its files, recording fills its pipe, and
//! switching its events off empties it, so that it can be removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The events that this kernel has, of the requested ones, with `--faults` all.
pub const TRACED: [&str; 3] = ["sched/sched_switch", "tlb/tlb_flush", "exceptions/page_fault_user"];

/// An event that it has, and that is never requested.
const OTHER: &str = "sched/sched_waking";

/// The content of an instance at its end, by path.
pub type Seen = BTreeMap<String, String>;

pub struct Kernel {
    folder: TempDir,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    stop: AtomicBool,
    fed: AtomicBool,
    seen: Mutex<Seen>,
}

impl Kernel {
    /// A kernel in which `lines` are logged as soon as recording starts.
    pub fn start(lines: String) -> Kernel {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("tracefs");
        fs::create_dir_all(root.join("instances/another-tool")).unwrap();
        fs::create_dir_all(root.join("events")).unwrap();
        for (file, text) in [
            ("tracing_on", "1"),
            ("trace_clock", "local"),
            ("events/enable", "1"),
            ("set_event_pid", "77"),
        ] {
            fs::write(root.join(file), text).unwrap();
        }
        let state = Arc::new(State::default());
        let thread = thread::spawn({
            let state = Arc::clone(&state);
            move || behave(&root, &lines, &state)
        });
        Kernel {
            folder,
            state,
            thread: Some(thread),
        }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("tracefs")
    }

    /// Names of the instances.
    pub fn instances(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root().join("instances")).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// The files outside the instances.
    pub fn outside(&self) -> Seen {
        contents(&self.root())
            .into_iter()
            .filter(|(path, _)| !path.starts_with("instances"))
            .collect()
    }

    /// The content of the instance when it was switched off.
    pub fn seen_at_the_end(&self) -> Seen {
        self.state.seen.lock().unwrap().clone()
    }

    /// Waits until the pipe has content.
    pub fn wait_until_fed(&self) {
        let begun = Instant::now();
        while !self.state.fed.load(Ordering::Acquire) {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing was recorded");
            thread::sleep(Duration::from_millis(1));
        }
        // And until a reader that polls a few times a second has read it.
        thread::sleep(Duration::from_millis(500));
    }

    /// Takes all files out of an instance.
    pub fn empty(&self, name: &str) {
        empty(&self.root().join("instances").join(name));
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || thread::panicking());
    }
}

fn behave(root: &Path, lines: &str, state: &State) {
    let mut made = BTreeSet::new();
    while !state.stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(1));
        for entry in fs::read_dir(root.join("instances")).unwrap().flatten() {
            let instance = entry.path();
            if entry.file_name() == "another-tool" {
                continue;
            }
            let reads = |file: &str| fs::read_to_string(instance.join(file)).unwrap_or_default();
            if made.insert(entry.file_name()) {
                populate(&instance);
            } else if reads("tracing_on") == "1" && !state.fed.load(Ordering::Relaxed) {
                let mut pipe = OpenOptions::new()
                    .append(true)
                    .open(instance.join("trace_pipe"))
                    .unwrap();
                pipe.write_all(lines.as_bytes()).unwrap();
                state.fed.store(true, Ordering::Release);
            } else if reads("events/enable") == "0" {
                *state.seen.lock().unwrap() = contents(&instance);
                empty(&instance);
            }
        }
    }
}

fn populate(instance: &Path) {
    let file = |path: &str, text: &str| {
        let path = instance.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for event in TRACED.into_iter().chain([OTHER]) {
        file(&format!("events/{event}/enable"), "off");
    }
    file("events/enable", "mixed");
    file("tracing_on", "new");
    for (path, text) in [
        ("trace_clock", "local"),
        ("buffer_size_kb", "7"),
        ("options/event-fork", ""),
        ("options/record-tgid", ""),
    ] {
        file(path, text);
    }
    file("set_event_pid", "");
    file("set_event_notrace_pid", "");
    file(
        "per_cpu/cpu0/stats",
        "entries: 9\noverrun: 7\ncommit overrun: 0\ndropped events: 8\nread events: 5\n",
    );
    // Last: a waiter for it finds the others.
    file("trace_pipe", "");
}

fn contents(folder: &Path) -> Seen {
    let mut all = Seen::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(inner).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "trace_pipe") {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                all.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    all
}

fn empty(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
}

/// That many page faults, a microsecond apart.
pub fn lines(count: usize) -> String {
    (0..count as u64)
        .map(|index| {
            format!(
                "  cc1-7   (      5) [001] d..1. {}.{:06}: page_fault_user: address=0x{:x} ip=0x1 error_code=0x6\n",
                index / 1_000_000,
                index % 1_000_000,
                address(index)
            )
        })
        .collect()
}

/// An address that does not compress.
pub fn address(index: u64) -> u64 {
    index
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(23)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
}
