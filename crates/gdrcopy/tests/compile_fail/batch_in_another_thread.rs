use gdrcopy::{Mapped, Mapping};

fn commit(mapping: &Mapping) {
    let batch = mapping.batch().unwrap();
    std::thread::scope(|s| {
        s.spawn(move || batch.commit()); //~ E0277
    });
}

fn share(mapping: &Mapping) {
    let batch = mapping.batch().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| drop(&batch)); //~ E0277
    });
}
