import { providerContract } from "#cloud/vpc-contract";
import { CloudSimulator } from "#test/cloud-simulator";

providerContract("Neutron's provider", () => CloudSimulator.open("neutron"));
