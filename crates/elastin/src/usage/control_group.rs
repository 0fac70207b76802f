//! The limits of this process's control groups, in both layouts of Linux.
//!
//! Version 1 has a tree for each controller, version 2 one tree for all; a machine may have both. The limits of all
//! groups between the process's own and the mounted root apply, so the smallest counts.

use std::path::{Path, PathBuf};

/// Limits of version 1 from here on mean none: the kernel encodes "no limit" as the largest number of pages.
const MEMORY_UNLIMITED_BYTES: f64 = (1_u64 << 60) as f64;

/// The resource limits of a process; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    /// Processor time, in cores.
    pub(crate) cores: Option<f64>,
    /// Memory, in bytes.
    pub(crate) memory_bytes: Option<f64>,
}

/// A mounted tree of groups, with the group of this process.
#[derive(Debug, PartialEq)]
struct Tree {
    mounted_at: PathBuf,
    group: PathBuf,
}

impl Limits {
    /// Reads the limits of this process. `root` is `/`, or the directory of a test's files.
    pub(crate) fn read(root: &Path) -> Self {
        let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
        let tree = |controller| tree(&groups, &mounts, controller);
        let smallest = |tree: Option<Tree>, limit: fn(&Path) -> Option<f64>| {
            let levels = tree.into_iter().flat_map(|tree| tree.levels(root));
            levels.filter_map(|level| limit(&level)).reduce(f64::min)
        };
        let either = |one: Option<f64>, other: Option<f64>| one.into_iter().chain(other).reduce(f64::min);
        Self {
            cores: either(
                smallest(tree(Some("cpu")), cores_of_version_1),
                smallest(tree(None), cores_of_version_2),
            ),
            memory_bytes: either(
                smallest(tree(Some("memory")), |level| {
                    number(level, "memory.limit_in_bytes").filter(|bytes| *bytes < MEMORY_UNLIMITED_BYTES)
                }),
                smallest(tree(None), |level| number(level, "memory.max")),
            ),
        }
    }
}

impl Tree {
    /// The directories of the process's own group and of its ancestors.
    fn levels(&self, root: &Path) -> Vec<PathBuf> {
        let relative = |path: &Path| path.strip_prefix("/").unwrap_or(path).to_owned();
        let mounted_at = root.join(relative(&self.mounted_at));
        let group = relative(&self.group);
        group.ancestors().map(|ancestor| mounted_at.join(ancestor)).collect()
    }
}

/// Finds the tree of a controller of version 1, or without a controller the tree of version 2.
fn tree(groups: &str, mounts: &str, controller: Option<&str>) -> Option<Tree> {
    let lists = |list: &str, name: &str| list.split(',').any(|listed| listed == name);
    // `4:memory:/the/group`; version 2 has no controllers: `0::/the/group`.
    let group = groups.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let found = match controller {
            Some(controller) => lists(controllers, controller),
            None => controllers.is_empty(),
        };
        found.then_some(group)
    })?;
    // `35 31 0:32 /root /mounted/at rw,relatime … - cgroup cgroup rw,memory`
    let (root, mounted_at) = mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let mut kind = kind.split(' ');
        let (kind, options) = (kind.next()?, kind.nth(1)?);
        let found = match controller {
            Some(controller) => kind == "cgroup" && lists(options, controller),
            None => kind == "cgroup2",
        };
        found.then_some((mount.next()?, mount.next()?))
    })?;
    // In a container, the mount may show only a part of the tree, while the group's path is that of the machine.
    let group = Path::new(group);
    let group = group
        .strip_prefix(root)
        .unwrap_or(if root == "/" { group } else { Path::new("") });
    Some(Tree {
        mounted_at: mounted_at.into(),
        group: group.to_owned(),
    })
}

fn cores_of_version_1(level: &Path) -> Option<f64> {
    let quota_us = number(level, "cpu.cfs_quota_us").filter(|quota| *quota > 0.0)?;
    let period_us = number(level, "cpu.cfs_period_us").filter(|period| *period > 0.0)?;
    Some(quota_us / period_us)
}

fn cores_of_version_2(level: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(level.join("cpu.max")).ok()?;
    let (quota_us, period_us) = text.trim().split_once(' ')?;
    let (quota_us, period_us): (f64, f64) = (quota_us.parse().ok()?, period_us.parse().ok()?);
    (period_us > 0.0).then_some(quota_us / period_us)
}

/// The number in a file; `None` for a word such as `max`.
fn number(level: &Path, file: &str) -> Option<f64> {
    std::fs::read_to_string(level.join(file)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the limits of a machine with these files.
    fn limits(files: &[(&str, &str)]) -> Limits {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        Limits::read(root.path())
    }

    const GIB: f64 = (1_u64 << 30) as f64;

    #[test]
    fn version_1_has_a_tree_for_each_controller() {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n";
        let found = limits(&[
            ("proc/self/mountinfo", mounts),
            (
                "proc/self/cgroup",
                "4:memory:/app/one\n2:cpuacct,cpu:/app\n1:name=systemd:/\n",
            ),
            ("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            (
                "sys/fs/cgroup/memory/app/one/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "2147483648\n"),
        ]);
        assert_eq!(found.cores, Some(1.5));
        assert_eq!(found.memory_bytes, Some(2.0 * GIB), "the group above has a limit");
    }

    #[test]
    fn version_2_has_one_tree() {
        let found = limits(&[
            (
                "proc/self/mountinfo",
                "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
            ),
            ("proc/self/cgroup", "0::/user.slice/app.scope\n"),
            ("sys/fs/cgroup/user.slice/app.scope/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/user.slice/app.scope/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/user.slice/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
        ]);
        assert_eq!(found.cores, Some(0.5));
        assert_eq!(found.memory_bytes, Some(GIB));
    }

    #[test]
    fn a_container_sees_its_part_of_the_tree() {
        let mounts = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory\n";
        let found = limits(&[
            ("proc/self/mountinfo", mounts),
            ("proc/self/cgroup", "4:memory:/docker/abc\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"),
        ]);
        assert_eq!(found.memory_bytes, Some(GIB));
        assert_eq!(found.cores, None);
    }

    #[test]
    fn both_versions_can_be_mounted_at_once() {
        let found = limits(&[
            (
                "proc/self/mountinfo",
                "32 31 0:29 / /cpu rw - cgroup cgroup rw,cpu\n41 31 0:38 / /unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("proc/self/cgroup", "1:cpu:/\n0::/\n"),
            ("cpu/cpu.cfs_quota_us", "200000"),
            ("cpu/cpu.cfs_period_us", "100000"),
            ("unified/memory.max", "1073741824"),
        ]);
        assert_eq!((found.cores, found.memory_bytes), (Some(2.0), Some(GIB)));
        assert_eq!(limits(&[]), Limits::default());
        assert_eq!(limits(&[("proc/self/cgroup", "malformed\n::\n")]), Limits::default());
    }

    #[test]
    fn the_limits_of_this_machine_are_plausible() {
        let found = Limits::read(Path::new("/"));
        assert!(
            found.cores.is_none_or(|cores| cores > 0.0 && cores < 10_000.0),
            "{found:?}"
        );
        assert!(found.memory_bytes.is_none_or(|bytes| bytes > 1e6), "{found:?}");
    }
}
