use gdrcopy::{Gdr, Pin, PinFlags, Result};

fn pin(gdr: &Gdr, address: u64) -> Result<Pin> {
    gdr.pin(address, 4096, PinFlags::DEFAULT) //~ E0133
}
