use elastin::prelude::*;

#[derive(Actor, Serialize, Deserialize, Default)]
struct Folder {
    files: Vec<Ref<File>>,
}

#[handlers]
impl Folder {
    async fn open(&mut self) -> usize {
        self.files.len()
    }
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct File {}

#[handlers]
impl File {}

fn main() {
    Elastin::app()
        .actor::<Folder>()
        .actor::<File>()
        .policy(policy!("tests/policies/missing.epl"));
}
