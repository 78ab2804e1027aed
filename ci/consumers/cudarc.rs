//! Makes calls of cudarc's safe interface, as programs do. Prints a line for each test that passes.

use std::sync::Arc;

use cudarc::driver::sys::CUgraphInstantiate_flags;
use cudarc::driver::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
use cudarc::driver::sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
use cudarc::driver::{CudaContext, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

type Result = std::result::Result<(), DriverError>;

fn copies(stream: &Arc<CudaStream>) -> Result {
    let numbers: Vec<u32> = (0..1000).collect();
    let first = stream.clone_htod(&numbers)?;
    let mut second = stream.alloc_zeros::<u32>(1000)?;
    stream.memcpy_dtod(&first, &mut second)?;
    assert_eq!(stream.clone_dtoh(&second)?, numbers);
    stream.memset_zeros(&mut second)?;
    assert_eq!(stream.clone_dtoh(&second)?, vec![0; 1000]);
    stream.synchronize()
}

/// Uses a slice in two streams. cudarc makes the second stream wait for the first one, by events of the slice.
fn two_streams(context: &Arc<CudaContext>) -> Result {
    let writer = context.new_stream()?;
    let reader = context.new_stream()?;
    let written = writer.clone_htod(&[7_u8; 100])?;
    assert_eq!(reader.clone_dtoh(&written)?, [7; 100]);
    let forked = writer.fork()?;
    forked.join(&reader)?;
    reader.wait(&forked.record_event(None)?)?;
    let start = writer.record_event(Some(cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT))?;
    let end = writer.record_event(Some(cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT))?;
    end.synchronize()?;
    assert!(end.is_complete() && start.elapsed_ms(&end)? >= 0.0);
    copies(&context.default_stream())
}

fn kernels(context: &Arc<CudaContext>) -> Result {
    const PTX: &str = ".version 7.0\n.target sm_70\n.address_size 64\n\
        .visible .entry fill(.param .u64 to, .param .u32 value)\n\
        { .reg .u64 %to; .reg .u32 %value; ld.param.u64 %to, [to]; ld.param.u32 %value, [value];\n\
          st.global.u32 [%to], %value; ret; }\n";
    let stream = context.new_stream()?;
    let mut word = stream.alloc_zeros::<u32>(1)?;
    // cudarc unloads the module when `fill` is dropped at the end of this function.
    let fill = context.load_module(Ptx::from_src(PTX))?.load_function("fill")?;
    // SAFETY: the GPU kernel has these parameters, and stores one word.
    unsafe { stream.launch_builder(&fill).arg(&mut word).arg(&5_u32).launch(LaunchConfig::for_num_elems(1))? };
    assert_eq!(stream.clone_dtoh(&word)?, [5]);
    Ok(())
}

/// gdremu lets a program begin a capture, but captures no calls. It refuses calls of CUDA's functions for graphs, and
/// prints the functions' names.
fn graphs(context: &Arc<CudaContext>) -> Result {
    let stream = context.new_stream()?;
    stream.begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL)?;
    assert_eq!(stream.capture_status()?, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert!(stream.end_capture(CUgraphInstantiate_flags(0)).is_err());
    let not_destroyed = context.check_err();
    assert!(not_destroyed.is_err());
    Ok(())
}

fn main() {
    let context = CudaContext::new(0).expect("a GPU");
    let tests: [(&str, fn(&Arc<CudaContext>) -> Result); 5] = [
        ("default stream", |context| copies(&context.default_stream())),
        ("new stream", |context| copies(&context.new_stream()?)),
        ("two streams", two_streams),
        ("kernels", kernels),
        ("graphs", graphs),
    ];
    for (name, test) in tests {
        println!("test {name}");
        match test(&context).and(context.check_err()) {
            Ok(()) => println!("ok {name}"),
            Err(error) => println!("failed {name}: {error}"),
        }
    }
}
