import { providerContract } from "#cloud/vpc-contract";
import { CloudSimulator } from "#test/cloud-simulator";

providerContract("Alcor's provider", () => CloudSimulator.open("alcor"));
