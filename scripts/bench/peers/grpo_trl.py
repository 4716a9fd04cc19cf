"""TRL's GRPOTrainer on the digits task of `rlinf train --algo grpo`: same model, tokenizer, prompts a step, samples a
prompt, lengths, optimiser and loss.

Runs in an environment of its own:
    python -m venv peer && peer/bin/pip install torch==2.13.0
    peer/bin/pip install torch==2.13.0 trl 'transformers==5.24.*' datasets accelerate
    peer/bin/python scripts/bench/peers/grpo_trl.py --model DIRECTORY --steps 300
The model directory is a Hugging Face one, so both sides start from the same weights. The last line is one JSON object.
"""

import argparse
import json
import os
import random
import time

BEGAN = time.time()
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1")

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--prompts", type=int, default=16)
parser.add_argument("--group", type=int, default=16)
parser.add_argument("--new-tokens", type=int, default=3)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--minibatches", type=int, default=1)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", required=True)
args = parser.parse_args()

import torch  # noqa: E402
import transformers  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback  # noqa: E402
from transformers.trainer_callback import PrinterCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

torch.set_num_threads(args.threads)
transformers.utils.logging.set_verbosity_error()
noise = random.Random(args.seed)


def digits():
    text = "".join(noise.choice("0123456789") for _ in range(2))
    return {"prompt": f"d{text}=", "answer": text[-1]}


def exact(completions, answer, **_):
    return [float(text == right) for text, right in zip(completions, answer)]


class Watch(TrainerCallback):
    """Reward and wall time of every generation round."""

    def __init__(self):
        self.rewards, self.times = [], []

    def on_log(self, arguments, state, control, logs=None, **_):
        if logs and "reward" in logs:
            self.rewards.append(logs["reward"])
            self.times.append(time.time())


samples = args.prompts * args.group
rows = Dataset.from_list([digits() for _ in range(args.prompts * args.steps)])
config = GRPOConfig(
    output_dir=args.out, per_device_train_batch_size=samples // args.minibatches, num_generations=args.group,
    gradient_accumulation_steps=1, steps_per_generation=args.minibatches, num_iterations=1,
    max_completion_length=args.new_tokens, learning_rate=args.lr, lr_scheduler_type="constant_with_warmup",
    warmup_steps=10, max_steps=args.steps * args.minibatches, beta=0.0, epsilon=0.2, epsilon_high=0.28,
    loss_type="dapo", temperature=1.0, logging_steps=args.minibatches, report_to=[], save_strategy="no", use_cpu=True,
    bf16=False, gradient_checkpointing=False, max_grad_norm=1.0, weight_decay=0.0, adam_beta2=0.99, disable_tqdm=True,
    dataloader_num_workers=0, dataloader_pin_memory=False, seed=args.seed)
watch = Watch()
trainer = GRPOTrainer(model=AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32), reward_funcs=exact,
                      args=config, train_dataset=rows, callbacks=[watch],
                      processing_class=AutoTokenizer.from_pretrained(args.model, padding_side="left"))
trainer.remove_callback(PrinterCallback)
trainer.train()
half = len(watch.times) // 2
steady = (len(watch.times) - 1 - half) * samples / (watch.times[-1] - watch.times[half])
print(json.dumps({"samples_per_s": steady, "whole_run_s": time.time() - BEGAN, "steps": len(watch.rewards),
                  "rewards": [round(reward, 3) for reward in watch.rewards]}))
