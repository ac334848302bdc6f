//! Consistency of the documents: every page is in the book's summary, and every relative link leads to a file.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every Markdown file below `folder`.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

/// Targets of the links and pictures of a page, blocks of code left out.
fn links(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2);
    let targets = prose.flat_map(|part| part.split("](").skip(1));
    targets
        .filter_map(|rest| rest.split(')').next())
        .map(str::to_string)
        .collect()
}

fn is_elsewhere(link: &str) -> bool {
    link.starts_with("https://") || link.starts_with('#')
}

#[test]
fn every_page_is_in_the_summary_once() {
    let book = root().join("docs/src");
    let summary = fs::read_to_string(book.join("SUMMARY.md")).expect("a summary");
    let mut listed: Vec<PathBuf> = links(&summary).iter().map(|link| book.join(link)).collect();
    let mut there = pages(&book);
    there.retain(|path| !path.ends_with("SUMMARY.md"));
    listed.sort();
    there.sort();
    assert_eq!(listed, there);
}

#[test]
fn every_relative_link_leads_to_a_file() {
    let mut all = pages(&root().join("docs"));
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "kernel/README.md",
        "examples/sweep/README.md",
    ] {
        all.push(root().join(name));
    }
    let mut seen = 0;
    for page in all {
        let text = fs::read_to_string(&page).expect("a text");
        for link in links(&text).iter().filter(|link| !is_elsewhere(link)) {
            let file = link.split('#').next().unwrap_or_default();
            let target = page.parent().expect("a folder").join(file);
            assert!(target.exists(), "{}: no {link}", page.display());
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen} links: the pattern finds none");
}

#[test]
fn links_of_the_book_stay_in_the_book() {
    let book = root().join("docs/src").canonicalize().expect("a folder");
    for page in pages(&book) {
        let text = fs::read_to_string(&page).expect("a text");
        for link in links(&text).iter().filter(|link| !is_elsewhere(link)) {
            let file = link.split('#').next().unwrap_or_default();
            let target = page.parent().expect("a folder").join(file);
            let target = target
                .canonicalize()
                .unwrap_or_else(|_| panic!("{}: no {link}", page.display()));
            assert!(
                target.starts_with(&book),
                "{}: {link} is outside of the book",
                page.display()
            );
        }
    }
}

#[test]
fn readme_has_at_most_160_lines() {
    let readme = fs::read_to_string(root().join("README.md")).expect("a README");
    let lines = readme.lines().count();
    assert!(lines <= 160, "README.md has {lines} lines, 160 are the limit");
}
