#!/usr/bin/env python
r"""Fine-tunes BERT to choose one of several endings of a text: SWAG (paper, section 4.4).

    python run_multiple_choice.py --data_dir=/data/swag --output_dir=/data/out \
        --vocab_file=vocab.txt --bert_config_file=bert_config.json \
        --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict \
        --train_batch_size=16 --learning_rate=2e-5 --num_train_epochs=3
"""

from bert_tf.tasks import program

main = program.main_of("multiple_choice")

if __name__ == "__main__":
    program.run(main)
