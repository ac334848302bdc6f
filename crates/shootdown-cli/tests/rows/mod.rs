//! Published rows of a user's own file.

/// A row of `workload` on `milan-72` under `ipi`, with `number` as the file has it, such as `ns_per_op = 9000`.
pub fn row(workload: &str, threads: u32, number: &str) -> String {
    format!(
        "[[row]]\n\
         table = \"lab\"\n\
         workload = \"{workload}\"\n\
         machine = \"milan-72\"\n\
         design = \"ipi\"\n\
         threads = {threads}\n\
         {number}\n\
         source = \"a loop, two CPUs, median of 5\"\n"
    )
}
