//! Merges the files of shards, and refuses anything but the whole sweep exactly once.

use std::path::{Path, PathBuf};

use super::results::{Cells, Format, POINT, POINTS, Results, SWEEP, Value};
use crate::print::number;

/// Most points named in a message.
const NAMED: usize = 5;

/// The identity that every row of a file carries, and its rows by point.
pub struct Part {
    /// The sweep's hash, as written.
    pub sweep: String,
    /// Points of the whole sweep.
    pub points: usize,
    /// The point and the named cells of each row.
    pub rows: Vec<(usize, Cells)>,
}

/// Reads the results of a sweep or of a shard.
///
/// # Errors
/// One line naming the file, what is wrong with it and the remedy.
pub fn part(path: &Path) -> Result<Part, String> {
    let fail = |reason: String| format!("{}: {reason}", path.display());
    let results = Results::read(path, Format::of(path)?).map_err(fail)?;
    let of = |name: &str| {
        results.column(name).ok_or_else(|| {
            fail(format!(
                "has no column `{name}`; expected a file that `shootdown sweep -o` wrote"
            ))
        })
    };
    let (sweep, point, points) = (of(SWEEP)?, of(POINT)?, of(POINTS)?);
    let mut identity: Option<(String, usize)> = None;
    let mut indices = Vec::new();
    for (number, row) in results.rows.iter().enumerate() {
        let (Value::Text(sweep), Value::Count(point), Value::Count(points)) = (&row[sweep], &row[point], &row[points])
        else {
            return Err(fail(format!("row {}: has no sweep, point and points", number + 1)));
        };
        let own = (sweep.clone(), *points as usize);
        if point >= points {
            return Err(fail(format!("row {}: point {point} of {points}", number + 1)));
        }
        if *identity.get_or_insert_with(|| own.clone()) != own {
            return Err(fail(format!("row {}: is of another sweep than the first", number + 1)));
        }
        indices.push(*point as usize);
    }
    let (sweep, points) = identity.ok_or_else(|| fail("has no rows; run that shard again".to_string()))?;
    Ok(Part {
        sweep,
        points,
        rows: indices.into_iter().zip(results.into_cells()).collect(),
    })
}

/// Merges `paths`, in the order of the points.
///
/// # Errors
/// One line: files of different sweeps, a point in two files, points in none.
pub fn merge(paths: &[PathBuf]) -> Result<Results, String> {
    let mut whole: Option<(String, usize)> = None;
    let mut rows: Vec<Option<(usize, Cells)>> = Vec::new();
    for (file, path) in paths.iter().enumerate() {
        let part = part(path)?;
        let own = (part.sweep, part.points);
        let (sweep, points) = whole.get_or_insert_with(|| own.clone());
        if (&*sweep, *points) != (&own.0, own.1) {
            return Err(format!(
                "{}: belongs to another sweep than {}; every shard must be run with the same options and machine files",
                path.display(),
                paths[0].display()
            ));
        }
        rows.resize(*points, None);
        for (point, cells) in part.rows {
            if let Some((other, _)) = &rows[point] {
                return Err(format!(
                    "{}: point {point} is also in {}; give each shard once",
                    path.display(),
                    paths[*other].display()
                ));
            }
            rows[point] = Some((file, cells));
        }
    }
    let missing: Vec<String> = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.is_none())
        .map(|(point, _)| point.to_string())
        .collect();
    if !missing.is_empty() {
        let more = if missing.len() > NAMED { ", ..." } else { "" };
        return Err(format!(
            "--merge: in none of the files: {} of {} ({}{more}); add the missing shards",
            missing.len(),
            number::counted(rows.len(), "point"),
            missing[..missing.len().min(NAMED)].join(", ")
        ));
    }
    Ok(Results::gather(
        rows.into_iter().flatten().map(|(_, cells)| cells).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(folder: &Path, name: &str, sweep: &str, points: u64, own: &[u64]) -> PathBuf {
        let rows = own.iter().map(|&point| {
            vec![
                (SWEEP.to_string(), Value::Text(sweep.to_string())),
                (POINT.to_string(), Value::Count(point)),
                (POINTS.to_string(), Value::Count(points)),
                ("ops".to_string(), Value::Count(point * 10)),
            ]
        });
        let path = folder.join(name);
        fs::write(
            &path,
            Results::gather(rows.collect()).encode(Format::of(&path).unwrap()),
        )
        .unwrap();
        path
    }

    #[test]
    fn shards_in_any_order_and_format_make_the_whole_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let a = write(folder.path(), "a.csv", "s", 4, &[0, 3]);
        let b = write(folder.path(), "b.parquet", "s", 4, &[1, 2]);
        let merged = merge(&[b, a]).unwrap();
        let ops: Vec<_> = merged.rows.iter().map(|row| row[3].clone()).collect();
        assert_eq!(ops, [0, 10, 20, 30].map(Value::Count));
    }

    #[test]
    fn merge_refuses_missing_overlapping_and_foreign_shards() {
        let folder = tempfile::tempdir().unwrap();
        let a = write(folder.path(), "a.csv", "s", 4, &[0, 3]);
        let b = write(folder.path(), "b.csv", "s", 4, &[1]);
        let c = write(folder.path(), "c.csv", "s", 4, &[1, 2]);
        let d = write(folder.path(), "d.csv", "t", 4, &[1, 2]);
        let text = folder.path().join("e.csv");
        fs::write(&text, "design,ops\nipi,3\n").unwrap();
        for (paths, expected) in [
            (
                vec![&a, &b],
                "in none of the files: 1 of 4 points (2); add the missing shards",
            ),
            (vec![&a, &b, &c], "point 1 is also in"),
            (vec![&a, &a], "point 0 is also in"),
            (vec![&a, &d], "belongs to another sweep"),
            (vec![&text], "has no column `sweep`"),
        ] {
            let paths: Vec<PathBuf> = paths.into_iter().cloned().collect();
            let message = merge(&paths).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
