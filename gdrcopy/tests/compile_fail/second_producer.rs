use gdrcopy::channel::{Ring, RingSender};

fn second_end(ring: Ring<'_, u32>) {
    let _first = ring.into_sender();
    let _second = ring.into_sender(); //~ E0382
}

fn shared_end(sender: &RingSender<'_, u32>) {
    let _ = sender.try_send(&[1]); //~ E0596
}
