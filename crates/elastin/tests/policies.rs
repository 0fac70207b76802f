//! The `policy!` macro: valid policies, and the compile errors of invalid ones.

use std::path::{Path, PathBuf};

use elastin::prelude::*;

/// Actors in another module, with private fields and a keyword as a handler's name, which the macro must reach too.
mod actors {
    use elastin::prelude::*;

    #[derive(Actor, Serialize, Deserialize, Default)]
    pub(crate) struct Folder {
        files: Vec<Ref<File>>,
    }

    #[handlers]
    impl Folder {
        async fn open(&mut self) -> usize {
            self.files.len()
        }

        async fn r#move(&mut self) {
            self.files.clear();
        }
    }

    #[derive(Actor, Serialize, Deserialize, Default)]
    pub(crate) struct File {
        size: u64,
    }

    #[handlers]
    impl File {
        async fn stat(&self) -> u64 {
            self.size
        }
    }
}

use actors::{File, Folder};

#[test]
fn a_policy_is_included_at_compile_time() {
    let policy = policy!("tests/policies/good.epl");
    assert_eq!(policy.file_name(), "tests/policies/good.epl");
    assert_eq!(policy.text(), include_str!("policies/good.epl"));
    let app = Elastin::app().actor::<Folder>().actor::<File>().policy(policy);
    assert_eq!(app.check().expect("the policy is fine"), "");
}

/// Each case has a mistake in its policy, with the expected compiler output beside it.
#[test]
fn policy_mistakes_are_compile_errors() {
    // trybuild compiles the cases as a package below the target directory, so their policies must be copied there.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("it is in the target directory");
    copy_policies(&target.join("tests/trybuild/elastin/tests/policies"));
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

fn copy_policies(to: &Path) {
    let from: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "policies"].iter().collect();
    std::fs::create_dir_all(to).expect("the directory can be made");
    for entry in std::fs::read_dir(from).expect("the policies are there") {
        let file = entry.expect("the directory can be read").path();
        let name = file.file_name().expect("a file has a name");
        std::fs::copy(&file, to.join(name)).expect("the policy can be copied");
    }
}
