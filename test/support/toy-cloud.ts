/**
 * A third kind of cloud, as an exercise: a provider of VPCs and a kind of device, each in a folder, written only against the faces of `cloud/vpc` and
 * `features/nic-cni`. Its agent makes a device for each bound port under the port's name, in a network namespace of its own.
 */

export { toyDevice } from "./toy-cloud/device/toy-device.ts";
export { ToyCloud, toyCloud } from "./toy-cloud/provider/toy-provider.ts";
